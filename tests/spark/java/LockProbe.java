import io.asynclock.hudi.FileLockProvider;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/**
 * A process that takes the lock of one table: "THREAD COMMAND [ARGUMENT]" in, one line out. Each thread name
 * is a thread with a provider of its own, as each of Hudi's write clients has.
 */
public final class LockProbe {
  private static String base;
  private static final Map<String, ExecutorService> THREADS = new HashMap<>();
  private static final ThreadLocal<FileLockProvider> PROVIDER = ThreadLocal.withInitial(LockProbe::provider);

  public static void main(String[] args) throws Exception {
    base = args[0];
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Map<String, Future<String>> counting = new HashMap<>();
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ", 3);
      ExecutorService thread = THREADS.computeIfAbsent(
          words[0], name -> Executors.newSingleThreadExecutor(task -> new Thread(task, name)));
      if (words[1].equals("start")) {
        counting.put(words[0], thread.submit(() -> count(Paths.get(words[2]))));
        System.out.println("started");
      } else if (words[1].equals("join")) {
        System.out.println(result(counting.get(words[0])));
      } else {
        System.out.println(result(thread.submit(command(words))));
      }
    }
    System.exit(0);
  }

  private static Callable<String> command(String[] words) {
    switch (words[1]) {
      case "lock":
        return () -> String.valueOf(PROVIDER.get().tryLock(Long.parseLong(words[2]), TimeUnit.MILLISECONDS));
      case "unlock":
        return () -> {
          PROVIDER.get().unlock();
          return "unlocked";
        };
      case "close":
        return () -> {
          PROVIDER.get().close();
          return "closed";
        };
      case "owner":
        return () -> PROVIDER.get().getCurrentOwnerLockInfo();
      case "use":
        return () -> Arrays.toString(FileLockProvider.use(Paths.get(URI.create(base)).toString()));
      default:
        throw new IllegalArgumentException(words[1]);
    }
  }

  /** Reads, adds one and writes back, a hundred times, under the lock. */
  private static String count(Path counter) throws Exception {
    for (int i = 0; i < 100; i++) {
      if (!PROVIDER.get().tryLock(60, TimeUnit.SECONDS)) {
        return "timed out";
      }
      try {
        int value = Integer.parseInt(Files.readString(counter));
        Files.writeString(counter, String.valueOf(value + 1));
      } finally {
        PROVIDER.get().unlock();
      }
    }
    return "counted";
  }

  private static String result(Future<String> future) throws InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException e) {
      return "error: " + e.getCause().getMessage();
    }
  }

  private static FileLockProvider provider() {
    TypedProperties properties = new TypedProperties();
    properties.setProperty("hoodie.base.path", base);
    return new FileLockProvider(
        new LockConfiguration(properties), new HadoopStorageConfiguration(new Configuration()));
  }
}
