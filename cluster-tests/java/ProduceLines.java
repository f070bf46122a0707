import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends each line of its input as a record, with acks=all and idempotence, and waits for every acknowledgement.
 *
 * Arguments: bootstrap address, topic, then configs as key=value. A line "key TAB value" has a key, a line without a tab has a
 * null key. Prints "acknowledged N" at the end; the first failed record ends it with an error.
 */
public class ProduceLines {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        AtomicLong acknowledged = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config)) {
            String line;
            while ((line = lines.readLine()) != null && failure.get() == null) {
                int tab = line.indexOf('\t');
                String key = tab < 0 ? null : line.substring(0, tab);
                producer.send(new ProducerRecord<>(args[1], key, line.substring(tab + 1)), (metadata, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else {
                        acknowledged.incrementAndGet();
                    }
                });
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println("acknowledged " + acknowledged.get());
    }
}
