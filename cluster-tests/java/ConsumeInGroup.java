import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;

/**
 * Reads a topic as a member of a group, and commits what it has processed, i.e. written out. Arguments: bootstrap servers,
 * group, topic. Ends by itself after five seconds with partitions but without a record, and by Ctrl-C; both leave the group.
 * One that is killed does not leave: its partitions go to others when its session is over.
 */
public class ConsumeInGroup {
    private static final long QUIET_LIMIT_NANOS = Duration.ofSeconds(5).toNanos();

    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[1]);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", "10000");
        config.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        config.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            Thread reader = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.wakeup();
                try {
                    reader.join();
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            }));
            consumer.subscribe(List.of(args[2]));
            long quietSince = System.nanoTime();
            while (System.nanoTime() - quietSince < QUIET_LIMIT_NANOS) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (consumer.assignment().isEmpty()) {
                    // Waits for the others of the group, dead ones included.
                    quietSince = System.nanoTime();
                }
                if (records.isEmpty()) {
                    continue;
                }
                records.forEach(record -> System.out.println(record.partition() + " " + record.offset() + " " + record.value()));
                System.out.flush();
                // Only now: what was not processed is read again by whoever takes over.
                consumer.commitSync();
                quietSince = System.nanoTime();
            }
        } catch (WakeupException stopped) {
            // Ctrl-C: the consumer has left the group.
        }
    }
}
