import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Several transactional producers, told one after the other what to do.
 *
 * Arguments: bootstrap address, what the producers' transactional ids begin with. Lines of the input: "begin P", "commit P",
 * "abort P", "flush P", "send P TOPIC KEY VALUE", "delete P TOPIC KEY", where P is the number of a producer. Producer 0 has no
 * transactions, the others have one at a time; each has another codec than the one before it. At the end of the input the process
 * ends at once: what is open stays open.
 */
public class ProduceTransactions {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    private static KafkaProducer<String, String> producer(String bootstrap, String prefix, int number) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("compression.type", CODECS[number % CODECS.length]);
        // Batches end with a flush, or when they are full.
        config.put("linger.ms", "60000");
        config.put("delivery.timeout.ms", "180000");
        config.put("key.serializer", StringSerializer.class.getName());
        config.put("value.serializer", StringSerializer.class.getName());
        if (number > 0) {
            config.put("transactional.id", prefix + number);
            config.put("transaction.timeout.ms", "600000");
        }
        KafkaProducer<String, String> producer = new KafkaProducer<>(config);
        if (number > 0) {
            producer.initTransactions();
        }
        return producer;
    }

    public static void main(String[] args) throws Exception {
        Map<Integer, KafkaProducer<String, String>> producers = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            int number = Integer.parseInt(words[1]);
            if (!producers.containsKey(number)) {
                producers.put(number, producer(args[0], args[1], number));
            }
            KafkaProducer<String, String> producer = producers.get(number);
            switch (words[0]) {
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> {
                    // What is not sent yet would be dropped.
                    producer.flush();
                    producer.abortTransaction();
                }
                case "flush" -> producer.flush();
                case "send" -> producer.send(new ProducerRecord<>(words[2], 0, words[3], words[4]));
                case "delete" -> producer.send(new ProducerRecord<>(words[2], 0, words[3], null));
                default -> throw new IllegalArgumentException(line);
            }
        }
        for (KafkaProducer<String, String> producer : producers.values()) {
            producer.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
