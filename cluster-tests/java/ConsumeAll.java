import java.io.BufferedWriter;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads every partition of a topic from its beginning to the end that it had at the start, without a group.
 *
 * Arguments: bootstrap address, topic. Prints one line a record: partition, offset, length of the key (-1 for a null key), key,
 * value, separated by tabs.
 */
public class ConsumeAll {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config);
                BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8))) {
            List<TopicPartition> partitions = consumer.partitionsFor(args[1]).stream()
                    .map(info -> new TopicPartition(info.topic(), info.partition()))
                    .collect(Collectors.toList());
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    int keyLength = record.key() == null ? -1 : record.key().getBytes(StandardCharsets.UTF_8).length;
                    out.write(record.partition() + "\t" + record.offset() + "\t" + keyLength + "\t"
                            + (record.key() == null ? "" : record.key()) + "\t" + record.value() + "\n");
                }
            }
        }
    }
}
