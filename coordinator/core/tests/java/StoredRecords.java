import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/**
 * Kafka's own codec of __consumer_offsets as a filter. Reads a line, answers a line; "! reason" if it cannot:
 *
 *   record KEY VALUE          deserialises both (VALUE "-" is null), serialises them again: KEY VALUE
 *   value offset|group V HEX  decodes a value of version V without its prefix, encodes it again: HEX
 *   tombstones GROUP TOPIC P  the tombstones that Kafka writes: KEY of the offset, KEY of the group
 */
public class StoredRecords {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println(switch (words[0]) {
                    case "record" -> record(words[1], words[2]);
                    case "value" -> value(words[1], Short.parseShort(words[2]), words[3]);
                    default -> tombstones(words[1], words[2], Integer.parseInt(words[3]));
                });
            } catch (Exception e) {
                out.println("! " + String.valueOf(e).replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String record(String key, String value) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        ByteBuffer valueBytes = value.equals("-") ? null : bytes(value);
        return text(serde, serde.deserialize(bytes(key), valueBytes));
    }

    private static String value(String kind, short version, String hex) {
        ApiMessage message = kind.equals("offset") ? new OffsetCommitValue() : new GroupMetadataValue();
        ByteBuffer bytes = bytes(hex);
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) {
            return "! " + bytes.remaining() + " bytes left over";
        }
        return hex(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }

    private static String tombstones(String group, String topic, int partition) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        CoordinatorRecord offset =
                GroupCoordinatorRecordHelpers.newOffsetCommitTombstoneRecord(group, topic, partition);
        CoordinatorRecord metadata = GroupCoordinatorRecordHelpers.newGroupMetadataTombstoneRecord(group);
        return hex(serde.serializeKey(offset)) + " " + hex(serde.serializeKey(metadata));
    }

    private static String text(GroupCoordinatorRecordSerde serde, CoordinatorRecord record) {
        byte[] value = serde.serializeValue(record);
        return hex(serde.serializeKey(record)) + " " + (value == null ? "-" : hex(value));
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return hex(bytes);
    }
}
