package activity.streams;

import org.apache.kafka.streams.processor.api.Record;

/** Lets valid profile updates and deletions through; which of them count is decided where the profile is kept. */
final class ProfileIntake extends Intake {

    private final Contracts contracts;

    ProfileIntake(String currency) {
        contracts = new Contracts(currency);
    }

    @Override
    void accept(Record<byte[], byte[]> record) throws Refusal {
        forward(record.key(), contracts.profile(record.key(), record.value(), record.timestamp()), record.timestamp());
    }
}
