import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records with acks=all and idempotence until its input ends, and writes down what it sent and what it was told.
 *
 * Arguments: bootstrap address, topic, number of partitions, number of this client, records a second, history file, then configs as
 * key=value. The format of the file and of the records is that of cluster-tests/src/history.rs.
 */
public class HistoryProducer {
    private static BufferedWriter history;

    private static long mix(long z) {
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    private static String payload(long value, int partition) {
        long checksum = mix(value ^ mix(partition + 0x9e3779b97f4a7c15L));
        return value + " " + String.format("%016x", checksum);
    }

    private static synchronized void note(char kind, int partition, long value, String more) {
        try {
            history.write(kind + " " + System.nanoTime() / 1000 + " " + partition + " " + value + more + "\n");
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static synchronized void flush() throws IOException {
        history.flush();
    }

    private static boolean refused(Exception error) {
        return error instanceof RecordTooLargeException || error instanceof SerializationException
                || error instanceof AuthorizationException;
    }

    private static void noteFailure(int partition, long value, Exception error) {
        String reason = error.toString().replace('\n', ' ');
        note(refused(error) ? 'x' : 'u', partition, value, " " + reason);
    }

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[2]);
        long client = Long.parseLong(args[3]);
        long perSecond = Long.parseLong(args[4]);
        history = Files.newBufferedWriter(Path.of(args[5]));
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "5");
        config.put("request.timeout.ms", "5000");
        config.put("delivery.timeout.ms", "120000");
        config.put("max.block.ms", "120000");
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        for (int i = 6; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        Thread stop = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (IOException closed) {
                // The same as its end.
            }
        });
        stop.setDaemon(true);
        stop.start();
        Semaphore inFlight = new Semaphore(2000);
        long begin = System.nanoTime();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            for (long number = 0; stop.isAlive(); number++) {
                long due = begin + number * 1_000_000_000L / perSecond;
                long wait = due - System.nanoTime();
                if (wait > 0) {
                    Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
                } else if (wait < -1_000_000_000L) {
                    // After a pause of the cluster: no burst of what could not be sent.
                    begin -= wait;
                }
                int partition = (int) (number % partitions);
                long value = client << 40 | number;
                inFlight.acquire();
                note('s', partition, value, "");
                // Whatever of it is read, it is known who sent it, though this process may be killed at any moment.
                flush();
                try {
                    producer.send(new ProducerRecord<>(args[1], partition, null, payload(value, partition)), (metadata, error) -> {
                        inFlight.release();
                        if (error == null) {
                            note('o', partition, value, " " + metadata.offset());
                        } else {
                            noteFailure(partition, value, error);
                        }
                    });
                } catch (ApiException error) {
                    inFlight.release();
                    noteFailure(partition, value, error);
                } catch (KafkaException error) {
                    noteFailure(partition, value, error);
                    flush();
                    throw error;
                }
            }
        }
        history.write("c " + System.nanoTime() / 1000 + "\n");
        history.close();
    }
}
