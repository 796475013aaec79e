package activity.streams;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Runs the application until SIGTERM or SIGINT (exit 0), or until it fails (a message, exit 1). */
public final class ActivityStreams {

    private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(30);
    private static final int ADMIN_TIMEOUT_MS = 30_000;

    private ActivityStreams() {}

    public static void main(String[] arguments) {
        int status = 1;
        CountDownLatch stopping = new CountDownLatch(1);
        stopOnSignal(stopping);
        try {
            status = run(Settings.from(System.getenv()), stopping) ? 0 : 1;
        } catch (ExecutionException failure) {
            System.err.println("activity-streams: " + failure.getCause());
        } catch (InterruptedException | RuntimeException failure) {
            System.err.println("activity-streams: " + failure.getMessage());
        }
        System.err.flush();
        Runtime.getRuntime().halt(status); // exit() would report the signal instead of how the application ended
    }

    /** Returns whether the application was asked to end and did, everything committed. */
    private static boolean run(Settings settings, CountDownLatch stopping)
            throws InterruptedException, ExecutionException {
        prepareTopics(settings);
        KafkaStreams streams = new KafkaStreams(ActivityTopology.of(settings), settings.streamsProperties());
        AtomicBoolean hasFailed = new AtomicBoolean();
        streams.setUncaughtExceptionHandler(failure -> {
            System.err.println("activity-streams: " + failure);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.RUNNING) {
                System.out.println("activity-streams: running");
            } else if (state == KafkaStreams.State.PENDING_ERROR) {
                hasFailed.set(true);
                stopping.countDown();
            }
        });
        streams.start();
        stopping.await();
        return streams.close(CLOSE_TIMEOUT) && !hasFailed.get();
    }

    private static void stopOnSignal(CountDownLatch stopping) {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.countDown();
            try {
                main.join(); // never returns: main halts the process
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
    }

    /** Makes sure that the inputs fit together, and creates the dead-letter topic where it is missing. */
    private static void prepareTopics(Settings settings) throws InterruptedException, ExecutionException {
        try (Admin admin = Admin.create(Map.<String, Object>of(
                AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, settings.bootstrapServers(),
                AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, ADMIN_TIMEOUT_MS))) {
            int partitions = partitions(admin, settings.purchaseTopic());
            partitions(admin, settings.viewTopic());
            if (partitions(admin, settings.profileTopic()) != partitions) {
                throw new IllegalStateException("%s and %s must have the same number of partitions"
                        .formatted(settings.purchaseTopic(), settings.profileTopic()));
            }
            NewTopic deadLetters = new NewTopic(settings.deadLetterTopic(), Optional.of(partitions), Optional.empty())
                    .configs(Map.of(TopicConfig.RETENTION_MS_CONFIG, "-1")); // until somebody has looked at them
            admin.createTopics(List.of(deadLetters)).all().get();
        } catch (ExecutionException failure) {
            if (!(failure.getCause() instanceof TopicExistsException)) {
                throw failure;
            }
        }
    }

    private static int partitions(Admin admin, String topic) throws InterruptedException, ExecutionException {
        try {
            return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                throw new IllegalStateException("there is no topic " + topic, failure);
            }
            throw failure;
        }
    }
}
