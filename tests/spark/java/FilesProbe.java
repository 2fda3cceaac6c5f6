import io.asynclock.disk.LocalFiles;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** A process that writes one file after the other: "COMMAND [ARGUMENT ...]" in, "done" or an exception's name out. */
public final class FilesProbe {
  private static OutputStream out;

  public static void main(String[] args) throws Exception {
    if (args.length == 0) {
      LocalFiles.install();
    }
    FileSystem files = FileSystem.getLocal(new Configuration()); // Hadoop's own, if it is given a word
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      String answer = "done";
      try {
        switch (words[0]) {
          case "create":
            out = files.create(new Path(words[1]), false);
            break;
          case "replace":
            out = files.create(new Path(words[1]), true);
            break;
          case "write":
            out.write(words[1].getBytes(StandardCharsets.UTF_8));
            break;
          case "close":
            out.close();
            break;
          case "mkdirs":
            files.mkdirs(new Path(words[1]));
            break;
          case "share":
            FileSystem.mkdirs(files, new Path(words[1]), new FsPermission(words[2]));
            break;
          case "chmod":
            files.setPermission(new Path(words[1]), new FsPermission(words[2]));
            break;
          case "read":
            answer = new String(files.open(new Path(words[1])).readAllBytes(), StandardCharsets.UTF_8);
            break;
          default:
            throw new IllegalArgumentException(line);
        }
      } catch (Exception | Error e) {
        answer = e.getClass().getSimpleName();
      }
      System.out.println(answer);
    }
  }
}
