# SPDX-License-Identifier: Apache-2.0
"""Models what a power cut may leave on a disk. It replays the system calls of a run, as traced by strace.

A file keeps the contents that it had when its last fsync began. A name (a new file, a new directory, a rename) is kept once its directory
was synced. POSIX guarantees no more. Each mode is one possible behaviour for everything else:
    lazy     only what was synced reaches the disk
    eager    names reach it at once, contents only when synced (ext4 and XFS were known for such empty files)
Writes are applied when they return, and a sync covers what was written before the sync was called. So the model does not rely on an order
that occurred only by chance.
"""
import os
import re

CALLS = ("mkdir,mkdirat,openat,write,pwrite64,writev,pwritev,ftruncate,fallocate,fsync,fdatasync,"
         "rename,renameat,renameat2,unlink,unlinkat,rmdir,symlink,symlinkat,link,linkat,truncate,lseek")
STRACE = ["strace", "-f", "-y", "-xx", "-s", "100000000", "--seccomp-bpf", "-e", f"trace={CALLS}"]
MODES = ("lazy", "eager")


class File:
    def __init__(self, synced=b""):
        self.data = bytearray(synced)
        self.synced = synced

    def write(self, at, data):
        if len(self.data) < at:
            self.data.extend(bytes(at - len(self.data)))
        self.data[at:at + len(data)] = data


class Directory:
    def __init__(self, tree=None):
        """`tree` maps names to bytes or trees. It is on the disk already."""
        self.names = {name: Directory(node) if isinstance(node, dict) else File(node) for name, node in (tree or {}).items()}
        self.synced = dict(self.names)

    def tree(self, mode):
        """Contents of the disk after a power cut: maps names to bytes or trees."""
        names = self.synced if mode == "lazy" else self.names
        return {name: node.tree(mode) if isinstance(node, Directory) else bytes(node.synced) for name, node in names.items()}

    def volatile(self):
        return {name: node.volatile() if isinstance(node, Directory) else bytes(node.data) for name, node in self.names.items()}


def text_of(word):
    """Decodes a quoted argument, which strace printed in hexadecimal."""
    return bytes.fromhex(re.fullmatch(r'"((?:\\x[0-9a-f]{2})*)"', word).group(1).replace("\\x", ""))


def calls(trace):
    """Yields (thread, name, arguments, result) of every call twice: when it begins, with None as the result, and when it returns."""
    begun = {}
    with open(trace, encoding="ascii") as file:
        for line in file:
            thread, rest = line.rstrip("\n").split(None, 1)
            if found := re.fullmatch(r"(\w+)\((.*?)\s*<unfinished \.\.\.>", rest):
                begun[thread] = found.groups()
                yield thread, *begun[thread], None
            elif found := re.fullmatch(r"<\.\.\. \w+ resumed>(.*)\)\s+= (-?\d+).*", rest):
                name, arguments = begun.pop(thread)
                yield thread, name, arguments + found.group(1), int(found.group(2))
            elif found := re.fullmatch(r"(\w+)\((.*)\)\s+= (-?\d+).*", rest):
                name, arguments, result = found.groups()
                yield thread, name, arguments, None
                yield thread, name, arguments, int(result)


class Disk:
    """Follows the changes below `root`, an existing directory that holds `tree` at the start. Names in the trace must be absolute."""

    def __init__(self, root, tree=None, every_write=False):
        self.root = os.path.realpath(root)
        self.every_write = every_write
        self.top = Directory(tree)
        self.offsets = {}
        self.syncing = {}

    def inside(self, path):
        """Path components below `root` of an absolute path, or None if it is elsewhere."""
        path = os.path.normpath(path)
        return os.path.relpath(path, self.root).split(os.sep) if path.startswith(self.root + os.sep) else None

    def paths(self, arguments):
        """Paths among the arguments of a call, each relative to the directory argument before it, if there is one."""
        found = re.findall(r'(?:(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>, )?("(?:\\x[0-9a-f]{2})*")', arguments)
        return [self.inside(os.path.join(text_of(f'"{begin}"'), text_of(path)).decode(errors="replace")) for begin, path in found]

    def at(self, parts):
        node = self.top
        for part in parts:
            node = node.names[part]
        return node

    def descriptor(self, word):
        """The number and the node of NUMBER<PATH>; the node is None outside of `root`."""
        found = re.match(r"(\d+)<((?:\\x[0-9a-f]{2})*)>", word)
        if not found:
            return None, None
        path = bytes.fromhex(found.group(2).replace("\\x", "")).decode(errors="replace")
        parts = [] if path == self.root else self.inside(path)
        try:
            return int(found.group(1)), None if parts is None else self.at(parts)
        except KeyError:  # removed while open
            return int(found.group(1)), None

    def replay(self, trace):
        """Yields the name of each call that may have changed the contents of the disk. With every_write, also of writes at an offset."""
        for thread, name, arguments, result in calls(trace):
            if result is None:
                if name in ("fsync", "fdatasync"):
                    node = self.descriptor(arguments)[1]
                    if node is not None:
                        self.syncing[thread] = node, bytes(node.data) if isinstance(node, File) else dict(node.names)
            elif result >= 0 and (self.apply(thread, name, arguments, result) or self.every_write and name in ("pwrite64", "ftruncate")):
                yield name

    def apply(self, thread, name, arguments, result):
        if name in ("fsync", "fdatasync"):
            node, kept = self.syncing.pop(thread, (None, None))
            if node is not None:
                node.synced = kept
            return node is not None
        if name == "fallocate" and "FALLOC_FL_KEEP_SIZE" in arguments:  # reserves space, which readers do not see
            return False
        if name in ("write", "pwrite64", "ftruncate", "lseek"):
            self.change_data(name, arguments, result)
            return False
        paths = self.paths(arguments)
        if not paths or paths[0] is None:
            assert self.descriptor(arguments)[1] is None, f"{name} is not modelled"
            return False
        return self.change_names(name, arguments, paths, result)

    def change_data(self, name, arguments, result):
        number, node = self.descriptor(arguments)
        if not isinstance(node, File):
            return
        if name == "pwrite64":
            words = arguments.rsplit(", ", 3)
            node.write(int(words[3]), text_of(words[1])[:result])
        elif name == "ftruncate":
            size = int(arguments.rsplit(", ", 1)[1])
            del node.data[size:]
            node.data.extend(bytes(size - len(node.data)))
        elif name == "lseek":
            if self.offsets.get((number, id(node))) is not None:  # None: the file was opened for appending
                self.offsets[number, id(node)] = result
        else:
            data = text_of(arguments.rsplit(", ", 2)[1])[:result]
            at = self.offsets[number, id(node)]
            node.write(len(node.data) if at is None else at, data)
            if at is not None:
                self.offsets[number, id(node)] = at + result

    def change_names(self, name, arguments, paths, result):
        folder, last = self.at(paths[0][:-1]), paths[0][-1]
        if name in ("mkdir", "mkdirat"):
            folder.names[last] = Directory()
        elif name == "openat":
            made = "O_CREAT" in arguments and last not in folder.names
            if made:
                folder.names[last] = File()
            node = folder.names[last]
            if isinstance(node, File):
                if "O_TRUNC" in arguments:
                    node.data.clear()
                self.offsets[result, id(node)] = None if "O_APPEND" in arguments else 0
            return made
        elif name in ("rename", "renameat", "renameat2"):
            other, new = self.at(paths[1][:-1]), paths[1][-1]
            if "RENAME_EXCHANGE" in arguments:
                folder.names[last], other.names[new] = other.names[new], folder.names[last]
            else:
                other.names[new] = folder.names.pop(last)
        elif name in ("unlink", "unlinkat", "rmdir"):
            del folder.names[last]
        else:
            raise AssertionError(f"{name} is not modelled")
        return True
