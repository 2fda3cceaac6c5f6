package org.apache.hudi.aws.transaction.lock;

import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;

import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.Properties;

/**
 * Stands in for the client of hudi-aws, whose jar is not in every registry: same name, same meaning of
 * each answer, the JDK's HTTP client below. It never sends a request twice. Endpoint and credentials come
 * from where the SDK takes them: the environment, or hoodie.aws.*; test.endpoint leads it through a proxy.
 */
public class S3StorageLockClient implements StorageLockClient {
  private static final DateTimeFormatter STAMP = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");
  private static final String REGION = "us-east-1";

  private final HttpClient http =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();
  private final String endpoint;
  private final String accessKey;
  private final String secretKey;
  private final String lockUri;
  private final Duration timeout;

  static {
    // The JDK's client would send a GET again after a lost connection.
    System.setProperty("jdk.httpclient.disableRetryConnect", "true");
    System.setProperty("jdk.httpclient.redirects.retrylimit", "1");
  }

  public S3StorageLockClient(String ownerId, String lockFileUri, Properties props) {
    this.lockUri = lockFileUri;
    this.endpoint = props.getProperty("test.endpoint", System.getenv("AWS_ENDPOINT_URL_S3"));
    this.accessKey = props.getProperty("hoodie.aws.access.key", System.getenv("AWS_ACCESS_KEY_ID"));
    this.secretKey = props.getProperty("hoodie.aws.secret.key", System.getenv("AWS_SECRET_ACCESS_KEY"));
    Object validity = props.getOrDefault("hoodie.write.lock.storage.validity.timeout.secs", "300");
    this.timeout = Duration.ofSeconds(Long.parseLong(validity.toString()) / 5);
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    HttpResponse<byte[]> answer;
    try {
      answer = send("GET", lockUri, null, null, null);
    } catch (IOException e) {
      throw new UncheckedIOException("Failed reading lock file", e);
    }
    int status = answer.statusCode();
    if (status == 200) {
      String etag = answer.headers().firstValue("ETag").orElseThrow();
      return Pair.of(LockGetResult.SUCCESS,
          Option.of(StorageLockFile.createFromStream(new ByteArrayInputStream(answer.body()), etag)));
    }
    if (status == 404) {
      return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
    }
    if (status == 409 || status == 429 || status >= 500) {
      return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
    }
    throw new IllegalStateException("S3 answered " + status);
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData data, Option<StorageLockFile> previous) {
    boolean overwrites = previous.isPresent();
    HttpResponse<byte[]> answer;
    try {
      answer = send("PUT", lockUri, StorageLockFile.toByteArray(data),
          overwrites ? "If-Match" : "If-None-Match", overwrites ? previous.get().getVersionId() : "*");
    } catch (IOException e) {
      if (!overwrites) {
        throw new UncheckedIOException("Failed creating lock file", e);
      }
      return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
    switch (answer.statusCode()) {
      case 200:
        String etag = answer.headers().firstValue("ETag").orElseThrow();
        return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(data, etag)));
      case 412:
        return Pair.of(LockUpsertResult.ACQUIRED_BY_OTHERS, Option.empty());
      case 429:
        return Pair.of(LockUpsertResult.THROTTLED, Option.empty());
      default:
        return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String path, boolean checkExistsFirst) {
    try {
      if (checkExistsFirst && send("HEAD", path, null, null, null).statusCode() != 200) {
        return Option.empty();
      }
      HttpResponse<byte[]> answer = send("GET", path, null, null, null);
      return answer.statusCode() == 200
          ? Option.of(new String(answer.body(), StandardCharsets.UTF_8)) : Option.empty();
    } catch (IOException e) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String path, String content) {
    try {
      return send("PUT", path, content.getBytes(StandardCharsets.UTF_8), null, null).statusCode() == 200;
    } catch (IOException e) {
      return false;
    }
  }

  @Override
  public void close() {
    // The JDK's client holds nothing that must be closed.
  }

  private HttpResponse<byte[]> send(String method, String uri, byte[] body, String condition, String value)
      throws IOException {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    URI target = URI.create(endpoint + "/" + place.getLeft() + "/" + place.getRight());
    byte[] payload = body == null ? new byte[0] : body;
    String stamp = ZonedDateTime.now(ZoneOffset.UTC).format(STAMP);
    String hash = HexFormat.of().formatHex(sha256(payload));
    HttpRequest.Builder request = HttpRequest.newBuilder(target)
        .timeout(timeout)
        .header("x-amz-date", stamp)
        .header("x-amz-content-sha256", hash)
        .header("Authorization", authorization(method, target, stamp, hash))
        .method(method, body == null
            ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofByteArray(payload));
    if (condition != null) {
      request.header(condition, value);
    }
    try {
      return http.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IOException(e);
    }
  }

  private String authorization(String method, URI target, String stamp, String hash) {
    String scope = stamp.substring(0, 8) + "/" + REGION + "/s3/aws4_request";
    String signed = "host;x-amz-content-sha256;x-amz-date";
    String canonical = method + "\n" + target.getRawPath() + "\n\nhost:" + target.getAuthority()
        + "\nx-amz-content-sha256:" + hash + "\nx-amz-date:" + stamp + "\n\n" + signed + "\n" + hash;
    String toSign = "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n"
        + HexFormat.of().formatHex(sha256(canonical.getBytes(StandardCharsets.UTF_8)));
    byte[] key = ("AWS4" + secretKey).getBytes(StandardCharsets.UTF_8);
    for (String part : scope.split("/")) {
      key = hmac(key, part);
    }
    return "AWS4-HMAC-SHA256 Credential=" + accessKey + "/" + scope + ", SignedHeaders=" + signed
        + ", Signature=" + HexFormat.of().formatHex(hmac(key, toSign));
  }

  private static byte[] sha256(byte[] data) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(data);
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }

  private static byte[] hmac(byte[] key, String data) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      return mac.doFinal(data.getBytes(StandardCharsets.UTF_8));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException(e);
    }
  }
}
