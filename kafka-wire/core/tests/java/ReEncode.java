import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Kafka's own codec as a filter. Reads a line, answers a line:
 *
 *   KEY VERSION req|resp HEX   decodes a body, encodes it again and prints it; "! reason" if it cannot
 *   apis                       prints the APIs: key, name, versions, header versions; ends with "."
 *   errors                     prints the error codes: number, name, whether retriable; ends with "."
 */
public class ReEncode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            switch (line) {
                case "apis" -> printApis(out);
                case "errors" -> printErrors(out);
                default -> out.println(reEncode(line.split(" ", -1)));
            }
        }
        out.flush();
    }

    private static String reEncode(String[] words) {
        try {
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
            short version = Short.parseShort(words[1]);
            ApiMessage message = words[2].equals("req") ? type.newRequest() : type.newResponse();
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            message.read(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) {
                return "! " + bytes.remaining() + " bytes left over";
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer again = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(again), cache, version);
            return HexFormat.of().formatHex(again.array(), 0, again.position());
        } catch (Exception e) {
            return "! " + String.valueOf(e).replace('\n', ' ');
        }
    }

    private static void printApis(PrintStream out) {
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.hasValidVersion()) {
                continue;
            }
            StringJoiner headers = new StringJoiner(",");
            for (short v = api.oldestVersion(); v <= api.latestVersion(); v++) {
                headers.add(api.requestHeaderVersion(v) + "/" + api.responseHeaderVersion(v));
            }
            out.println(api.id + " " + api.name + " " + api.oldestVersion() + " " + api.latestVersion(false)
                    + " " + headers);
        }
        out.println(".");
    }

    private static void printErrors(PrintStream out) {
        for (Errors error : Errors.values()) {
            out.println(error.code() + " " + error.name() + " "
                    + (error.exception() instanceof RetriableException));
        }
        out.println(".");
    }
}
