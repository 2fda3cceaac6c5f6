import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.security.AccessControlException;

/** Reads source files as streams do: the URL of one in, "read" or an exception's name and message out. */
public final class StoredProbe {

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.set("fs.bucket.impl", Bucket.class.getName());
    conf.setClassLoader(StoredProbe.class.getClassLoader());
    Method open =
        Class.forName("io.asynclock.source.Stored").getDeclaredMethod("open", Path.class, Configuration.class);
    open.setAccessible(true);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer = "read";
      try (InputStream file = (InputStream) open.invoke(null, new Path(line), conf)) {
        file.read();
      } catch (InvocationTargetException refused) {
        answer = text(refused.getCause());
      } catch (IOException | RuntimeException failed) {
        answer = text(failed);
      }
      System.out.println(answer);
    }
  }

  private static String text(Throwable error) {
    return error.getClass().getSimpleName() + ": " + error.getMessage();
  }

  /** A store that answers with what the name of an object begins with. */
  public static final class Bucket extends RawLocalFileSystem {
    @Override
    public URI getUri() {
      return URI.create("bucket:///");
    }

    @Override
    public String getScheme() {
      return "bucket";
    }

    @Override
    public FSDataInputStream open(Path path, int size) throws IOException {
      switch (path.getName().split("-")[0]) {
        case "403":
          throw new AccessDeniedException(path.toString(), null, "Access Denied (Status Code: 403)");
        case "acl":
          throw new AccessControlException("Permission denied: user=alice, access=READ");
        case "404":
          throw new FileNotFoundException("No such file or directory: " + path);
        case "503":
          throw new IOException("Slow Down (Status Code: 503)");
        default:
          return super.open(path, size);
      }
    }
  }
}
