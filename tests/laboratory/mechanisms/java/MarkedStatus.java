import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hudi.client.WriteStatus;
import org.apache.spark.TaskContext;

/**
 * What a task of Hudi reports of its file, with something done to the first task after its file is written.
 *
 * <p>In the folder of the system property {@code marked.folder} a file {@code fail} makes its first attempt
 * fail, and a file {@code slow} makes it wait until another attempt has written, too.
 */
public final class MarkedStatus extends WriteStatus {

  private static final Path FOLDER = Path.of(System.getProperty("marked.folder", "/nowhere"));

  public MarkedStatus(Boolean trackSuccessRecords, Double failureFraction, Boolean isMetadataTable) {
    super(trackSuccessRecords, failureFraction, isMetadataTable);
  }

  public MarkedStatus(Boolean trackSuccessRecords, Double failureFraction) {
    super(trackSuccessRecords, failureFraction);
  }

  public MarkedStatus() {
  }

  /** Hudi asks for this once it has closed the file. */
  @Override
  public long getTotalErrorRecords() {
    TaskContext task = TaskContext.get();
    if (task != null && task.partitionId() == 0) {
      if (task.attemptNumber() == 0) {
        disturb();
      } else if (Files.exists(FOLDER.resolve("slow"))) {
        overtake();
      }
    }
    return super.getTotalErrorRecords();
  }

  private static void disturb() {
    if (Files.exists(FOLDER.resolve("fail"))) {
      throw new IllegalStateException("this task fails after it has written its file");
    }
    while (Files.exists(FOLDER.resolve("slow")) && !Files.exists(FOLDER.resolve("overtaken"))) {
      try {
        Thread.sleep(20);
      } catch (InterruptedException e) {
        throw new IllegalStateException("this attempt was overtaken", e);
      }
    }
  }

  private static void overtake() {
    try {
      Files.write(FOLDER.resolve("overtaken"), new byte[0]);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }
}
