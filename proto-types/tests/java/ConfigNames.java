// Prints Kafka's own definitions of topic and broker configs, one a line: table, name, type, default, allowed values,
// separated by tabs; then for lines `name<TAB>value` on standard input what Kafka says to that value of a topic config.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigNames {
    static void print(String table, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            if (key.internalConfig) continue;
            String standard = "-";
            if (key.hasDefault() && key.defaultValue != null)
                standard = "=" + ConfigDef.convertToString(key.defaultValue, key.type);
            String allowed = key.validator == null ? "" : key.validator.toString();
            System.out.println(String.join("\t", table, key.name, key.type.name(), standard, allowed));
        }
    }

    public static void main(String[] arguments) throws Exception {
        print("topic", LogConfig.configDefCopy());
        print("node", AbstractKafkaConfig.CONFIG_DEF);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            String verdict = "ok";
            try {
                LogConfig.validate(Map.of(parts[0], parts[1]));
            } catch (Exception refusal) {
                verdict = refusal.getMessage();
            }
            System.out.println("verdict\t" + verdict);
        }
    }
}
