import io.asynclock.hudi.StoreLockProvider;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.aws.transaction.lock.S3StorageLockClient;
import org.apache.hudi.client.transaction.lock.SkewedProvider;
import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.hudi.storage.StoragePath;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import static org.apache.hudi.client.transaction.lock.StorageBasedLockProvider.DEFAULT_TABLE_LOCK_FILE_NAME;

/** Drives Hudi's StorageBasedLockProvider: one command a line, one answer a line. */
public class Harness {
  private static final Map<String, StorageBasedLockProvider> PROVIDERS = new HashMap<>();
  private static final Map<String, S3StorageLockClient> CLIENTS = new HashMap<>();
  private static final List<Thread> RACERS = new ArrayList<>();
  private static final AtomicInteger WINS = new AtomicInteger();
  private static final int LEAD = 5;
  private static volatile boolean racing;
  private static volatile String raceError = "";

  public static void main(String[] arguments) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer;
      try {
        answer = String.valueOf(run(line.split(" ")));
      } catch (Throwable e) {
        answer = "error " + chain(e);
      }
      // A lost lock interrupts this thread.
      if (Thread.interrupted()) {
        answer += " interrupted";
      }
      out.println(answer.replace('\n', ' '));
      out.flush();
    }
    System.exit(0);
  }

  private static Object run(String[] words) throws Exception {
    String name = words.length > 1 ? words[1] : "";
    switch (words[0]) {
      case "new":
        PROVIDERS.put(name, provider(Long.parseLong(words[2]), words, 3));
        return "ok";
      case "newStore":
        Configuration hadoop = new Configuration(false);
        hadoop.set("hoodie.write.lock.storage.validity.timeout.secs", words[2]);
        hadoop.set("hoodie.write.lock.storage.renew.interval.secs", "1");
        PROVIDERS.put(name, new StoreLockProvider(
            new LockConfiguration(properties(words, 3)), new HadoopStorageConfiguration(hadoop)));
        return "ok";
      case "use":
        return Arrays.toString(StoreLockProvider.use(name));
      case "tryLock":
        return PROVIDERS.get(name).tryLock();
      case "tryLockFor":
        return PROVIDERS.get(name).tryLock(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
      case "renew":
        return ((SkewedProvider) PROVIDERS.get(name)).renew();
      case "unlock":
        PROVIDERS.get(name).unlock();
        return "ok";
      case "close":
        PROVIDERS.get(name).close();
        return "ok";
      case "getLock":
        return show(PROVIDERS.get(name).getLock());
      case "orphan":
        Thread thread = new Thread(() -> PROVIDERS.get(name).tryLock());
        thread.start();
        thread.join();
        return show(PROVIDERS.get(name).getLock());
      case "client":
        CLIENTS.put(name, new S3StorageLockClient("test", words[2], properties(words, 3)));
        return "ok";
      case "read":
        return CLIENTS.get(name).readCurrentLockFile().getLeft();
      case "create":
        return CLIENTS.get(name).tryUpsertLockFile(data("true", "1", "a"), Option.empty()).getLeft();
      case "update":
        StorageLockFile before = new StorageLockFile(data("false", "1", "a"), words[2]);
        return CLIENTS.get(name).tryUpsertLockFile(data("true", "1", "a"), Option.of(before)).getLeft();
      case "parse":
        byte[] bytes = words.length > 1 ? Base64.getDecoder().decode(name) : new byte[0];
        return show(StorageLockFile.createFromStream(new ByteArrayInputStream(bytes), "v"));
      case "encode":
        return new String(StorageLockFile.toByteArray(data(words[1], words[2], words[3])), StandardCharsets.UTF_8);
      case "place":
        Pair<String, String> place = StorageLockClient.parseBucketAndPath(
            new StoragePath(StorageLockClient.getLockFolderPath(name), DEFAULT_TABLE_LOCK_FILE_NAME).toString());
        return place.getLeft() + " " + place.getRight();
      case "cycles":
        return cycles(PROVIDERS.get(name), Integer.parseInt(words[2]));
      case "race":
        race(Integer.parseInt(words[1]), words[2], Arrays.copyOfRange(words, 3, words.length));
        return "ok";
      case "wins":
        return WINS.get() + " " + raceError;
      case "stop":
        racing = false;
        for (Thread racer : RACERS) {
          racer.join();
        }
        return WINS.get() + " " + raceError;
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private static TypedProperties properties(String[] words, int from) {
    TypedProperties properties = new TypedProperties();
    for (int i = from; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      properties.setProperty(pair[0], pair[1]);
    }
    return properties;
  }

  private static SkewedProvider provider(long skewMs, String[] words, int from) {
    return new SkewedProvider(new LockConfiguration(properties(words, from)),
        new HadoopStorageConfiguration(new Configuration(false)), skewMs);
  }

  private static StorageLockData data(String expired, String validUntil, String owner) {
    return new StorageLockData(Boolean.parseBoolean(expired), Long.parseLong(validUntil), owner);
  }

  private static String show(StorageLockFile file) {
    return file == null ? "null" : file.isExpired() + " " + file.getValidUntilMs() + " " + file.getOwner();
  }

  private static String chain(Throwable error) {
    StringBuilder text = new StringBuilder();
    for (Throwable e = error; e != null; e = e.getCause()) {
      text.append(e.getClass().getSimpleName()).append(": ").append(e.getMessage()).append("; ");
    }
    return text.toString();
  }

  /** Milliseconds of each acquire, renew and release, by turns. */
  private static String cycles(StorageBasedLockProvider provider, int count) {
    StringBuilder times = new StringBuilder();
    for (int i = 0; i < count; i++) {
      long start = System.nanoTime();
      if (!provider.tryLock()) {
        throw new IllegalStateException("held by another");
      }
      long acquired = System.nanoTime();
      if (!((SkewedProvider) provider).renew()) {
        throw new IllegalStateException("not renewed");
      }
      long renewed = System.nanoTime();
      provider.unlock();
      long released = System.nanoTime();
      times.append((acquired - start) / 1e6).append(',').append((renewed - acquired) / 1e6).append(',')
          .append((released - renewed) / 1e6).append(' ');
    }
    return times.toString().trim();
  }

  private static void race(int contenders, String counter, String[] options) {
    WINS.set(0);
    racing = true;
    for (int i = 0; i < contenders; i++) {
      Thread racer = new Thread(() -> {
        StorageBasedLockProvider provider = provider(0, options, 0);
        S3StorageLockClient store = new S3StorageLockClient("race", counter, properties(options, 0));
        try {
          while (racing) {
            if (!isAhead(store, counter) && provider.tryLock()) {
              long count = Long.parseLong(store.readObject(counter, false).get());
              if (!store.writeObject(counter, Long.toString(count + 1))) {
                throw new IllegalStateException("the counter was not written");
              }
              WINS.incrementAndGet();
              provider.unlock();
            }
            Thread.sleep(ThreadLocalRandom.current().nextInt(10, 40));
          }
        } catch (Throwable e) {
          raceError = chain(e);
        } finally {
          provider.close();
        }
      });
      RACERS.add(racer);
      racer.start();
    }
  }

  /** Nobody promises turns: on a busy machine the faster side would win a hundred times for each time of the other. */
  private static boolean isAhead(S3StorageLockClient store, String counter) {
    long others = Long.parseLong(store.readObject(counter, false).get()) - WINS.get();
    return WINS.get() - others > LEAD;
  }
}
