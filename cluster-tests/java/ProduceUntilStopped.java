import java.io.PrintStream;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends numbered records with acks=all and idempotence until its input ends, through any number of broker failures.
 *
 * Arguments: bootstrap address, topic, number of partitions, most records in flight. The value of a record is its number, from 0
 * in each partition. Prints one line for each answer: "ack PARTITION NUMBER OFFSET" or "fail PARTITION NUMBER REASON"; at the end
 * "sent N", when all were answered.
 */
public class ProduceUntilStopped {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        Semaphore inFlight = new Semaphore(Integer.parseInt(args[3]));
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "1");
        config.put("request.timeout.ms", "3000");
        config.put("delivery.timeout.ms", "120000");
        config.put("max.block.ms", "120000");
        config.put("reconnect.backoff.ms", "20");
        config.put("reconnect.backoff.max.ms", "200");
        config.put("retry.backoff.ms", "20");
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true);
        AtomicLong sent = new AtomicLong();
        Thread stop = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException closed) {
                // The same as its end.
            }
        });
        stop.setDaemon(true);
        stop.start();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (long number = 0; stop.isAlive(); number++) {
                for (int partition = 0; partition < partitions; partition++) {
                    int to = partition;
                    long value = number;
                    inFlight.acquire();
                    sent.incrementAndGet();
                    producer.send(new ProducerRecord<>(topic, partition, null, Long.toString(number)), (metadata, error) -> {
                        inFlight.release();
                        out.println(error == null
                                ? "ack " + to + " " + value + " " + metadata.offset()
                                : "fail " + to + " " + value + " " + error);
                    });
                }
            }
        }
        out.println("sent " + sent.get());
    }
}
