import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Makes the topics that the programs of the client table write to, since not every client can create one.
 *
 * Arguments: bootstrap address, then prefixes.
 */
public class MakeTopics {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        List<NewTopic> topics = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                topics.add(new NewTopic(args[i] + "-" + codec, 3, (short) 1));
            }
            topics.add(new NewTopic(args[i] + "-group", 4, (short) 1));
        }
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(topics).all().get();
        }
    }
}
