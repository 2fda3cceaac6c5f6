package io.asynclock.disk;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;

/**
 * Files that several users lock. Exactly the users who may write in a folder may lock its files, whatever the umask,
 * since the operating system grants a shared lock to everyone who can read a file.
 */
public final class SharedFiles {

  /**
   * As in {@code asynclock/backends/_mounts.py}: this machine's kernel is not the only one that gives locks
   * there.
   */
  private static final Set<String> KINDS = Set.of(
      "9p", "acfs", "afs", "auristorfs", "beegfs", "ceph", "cifs", "coda", "drvfs", "fuse", "gfs2",
      "glusterfs", "gpfs", "hostfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs",
      "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs");

  private static final String MODE = "unix:mode";
  private static final int PERMISSIONS = 07777;
  private static final int OWNER_WRITES = 0600;
  private static final int GROUP_WRITES = 0020;
  private static final int OTHERS_WRITE = 0002;

  private SharedFiles() {}

  /** Whether a file system of this kind is shared with other machines or with the host of this one. */
  public static boolean isShared(String kind) {
    // "fuse.sshfs" and the like; "fuseblk" is a local disk.
    return KINDS.contains(kind) || kind.startsWith("fuse.");
  }

  /** Creates an empty file for all users who may write in its folder; keeps one that another process made. */
  public static void create(Path path) throws IOException {
    // Made under another name: nobody can open it before it has its mode, nor a mode that is too wide.
    Path draft = Files.createTempFile(path.getParent(), ".asynclock", ".tmp");
    try {
      int folder = mode(path.getParent());
      int mode = OWNER_WRITES;
      mode |= (folder & GROUP_WRITES) == 0 ? 0 : OWNER_WRITES >> 3;
      mode |= (folder & OTHERS_WRITE) == 0 ? 0 : OWNER_WRITES >> 6;
      share(draft, path.getParent(), mode);
      link(draft, path);
    } catch (FileAlreadyExistsException e) {
      // Another process created it first.
    } finally {
      Files.deleteIfExists(draft);
    }
  }

  /** Shares a new folder like its parent, if several users may write there. */
  public static void likeItsFolder(Path folder) throws IOException {
    int above = mode(folder.getParent());
    if ((above & (GROUP_WRITES | OTHERS_WRITE)) != 0) {
      share(folder, folder.getParent(), above);
    }
  }

  private static void link(Path draft, Path path) throws IOException {
    try {
      Files.createLink(path, draft);
    } catch (FileAlreadyExistsException e) {
      throw e;
    } catch (UnsupportedOperationException | FileSystemException e) {
      // No hard links: FAT, which has no modes of files either.
      Files.createFile(path);
    }
  }

  private static void share(Path made, Path folder, int mode) throws IOException {
    // The group before the mode, since a new group may clear the setgid bit. Only root changes the owner.
    for (String owner : new String[] {"unix:uid", "unix:gid"}) {
      try {
        Object wanted = Files.getAttribute(folder, owner);
        if (!wanted.equals(Files.getAttribute(made, owner))) {
          Files.setAttribute(made, owner, wanted);
        }
      } catch (FileSystemException e) {
        // Not a member of that group: the file stays with the first group of its owner.
      }
    }
    Files.setAttribute(made, MODE, mode);
  }

  private static int mode(Path path) throws IOException {
    return (int) Files.getAttribute(path, MODE) & PERMISSIONS;
  }
}
