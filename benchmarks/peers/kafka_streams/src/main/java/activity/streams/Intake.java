package activity.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/** Judges input records: what keeps the contract goes on, everything else is forwarded as {@link Judged.Refused}. */
abstract class Intake implements Processor<byte[], byte[], byte[], Judged> {

    private ProcessorContext<byte[], Judged> context;

    @Override
    public void init(ProcessorContext<byte[], Judged> context) {
        this.context = context;
    }

    @Override
    public final void process(Record<byte[], byte[]> record) {
        try {
            accept(record);
        } catch (Refusal refusal) {
            context.forward(new Record<>(record.key(), new Judged.Refused(record.value()), record.timestamp(),
                    deadLetterHeaders(record.headers(), refusal.reason())));
        }
    }

    /** Takes a record in, or says why not. */
    abstract void accept(Record<byte[], byte[]> record) throws Refusal;

    /** Hands on what the pipeline needs of a record; its headers are not among it. */
    final void forward(byte[] key, Judged value, long timestamp) {
        context.forward(new Record<>(key, value, timestamp));
    }

    /** The record's own headers, then the reason and where the record stands. */
    private Headers deadLetterHeaders(Headers original, String reason) {
        Headers headers = new RecordHeaders(original).add("dead-letter-reason", reason.getBytes(UTF_8));
        RecordMetadata metadata = context.recordMetadata().orElseThrow();
        return headers.add("dead-letter-topic", metadata.topic().getBytes(UTF_8))
                .add("dead-letter-partition", Integer.toString(metadata.partition()).getBytes(UTF_8))
                .add("dead-letter-offset", Long.toString(metadata.offset()).getBytes(UTF_8));
    }
}
