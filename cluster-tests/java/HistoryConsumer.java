import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads every partition of a topic from its beginning, without a group, and writes down what it read.
 *
 * Arguments: bootstrap address, topic, number of partitions, "follow" or "final", history file, then configs as key=value. With
 * "follow" it reads until its input ends, with "final" up to the end that the partitions have when it starts. An offset that is out
 * of range ends it with an error: nothing that could be read once may vanish. The format of the file is that of
 * cluster-tests/src/history.rs.
 */
public class HistoryConsumer {
    private static BufferedWriter history;

    private static String now() {
        return Long.toString(System.nanoTime() / 1000);
    }

    private static void note(ConsumerRecord<String, String> record) throws IOException {
        String[] words = record.value() == null ? new String[0] : record.value().split(" ");
        boolean wellFormed = words.length >= 2 && words[0].matches("[0-9]{1,19}") && words[1].matches("[0-9a-f]{16}");
        String where = now() + " " + record.partition() + " " + record.offset();
        history.write(wellFormed ? "r " + where + " " + words[0] + " " + words[1] + "\n" : "m " + where + "\n");
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        boolean follow = args[3].equals("follow");
        history = Files.newBufferedWriter(Path.of(args[4]));
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("key.deserializer", StringDeserializer.class.getName());
        config.put("value.deserializer", StringDeserializer.class.getName());
        for (int i = 5; i < args.length; i++) {
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
        List<TopicPartition> partitions =
                IntStream.range(0, count).mapToObj(i -> new TopicPartition(args[1], i)).collect(Collectors.toList());
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config)) {
            Map<TopicPartition, Long> ends = follow ? Map.of() : consumer.endOffsets(partitions);
            consumer.assign(partitions);
            for (TopicPartition partition : partitions) {
                consumer.seek(partition, 0);
                history.write("a " + now() + " " + partition.partition() + " 0\n");
            }
            while (follow ? stop.isAlive() : partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    note(record);
                }
                history.flush();
            }
            for (TopicPartition partition : ends.keySet()) {
                history.write("e " + now() + " " + partition.partition() + " " + ends.get(partition) + "\n");
            }
        }
        history.write("c " + now() + "\n");
        history.close();
    }
}
