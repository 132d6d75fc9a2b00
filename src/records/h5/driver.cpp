// SPDX-License-Identifier: Apache-2.0
#include "h5/driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#if __has_include(<H5FDdevelop.h>)  // HDF5 1.14; older ones have it in hdf5.h
#include <H5FDdevelop.h>
#endif

#include "base/error.hpp"

#include "h5/journal.hpp"

namespace trireme::h5 {
namespace {

struct Info {
  Writes how = Writes::direct;
};

struct Open : H5FD_t {  // HDF5 sees that part
  std::string path;
  int file = -1;
  dev_t device = 0;
  ino_t inode = 0;
  Writes how = Writes::direct;
  bool writable = false;
  std::unique_ptr<Journal> journal;  ///< of a journaled one that is writable
  Pages pages;                       ///< what waits
  std::int64_t kept = 0;             ///< the file's size at the last flush, with a journal
  haddr_t end = 0;                   ///< its size as HDF5 sees it
  haddr_t allocated = 0;             ///< HDF5's own mark
  bool changed = false;              ///< since the last flush
  std::string problem;
  std::string* last_words = nullptr;  ///< of a file that is being closed: gets the problem
};

Open& of(H5FD_t* file) {
  return *static_cast<Open*>(file);
}
const Open& of(const H5FD_t* file) {
  return *static_cast<const Open*>(file);
}

/// Onto HDF5's error stack, as a message that innermost_message() can parse.
void push(const char* what, const std::string& path, const char* reason) {
  H5Epush2(H5E_DEFAULT, __FILE__, what, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR,
           "%s failed: name = '%s', error message = '%s'", what, path.c_str(), reason);
}

herr_t fail(Open& open, const char* what, int reason, const std::string& path) {
  if (open.problem.empty())
    open.problem = std::strerror(reason);
  if (open.last_words != nullptr) {
    *open.last_words = open.problem;
    return 0;
  }
  push(what, path, std::strerror(reason));
  return -1;
}
herr_t fail(Open& open, const char* what, int reason) {
  return fail(open, what, reason, open.path);
}

/// What an exception from a callback becomes: none may pass through HDF5.
herr_t out_of_memory(Open& open) noexcept {
  try {
    open.pages.clear();
    return fail(open, "memory", ENOMEM);
  } catch (...) {
    return -1;
  }
}

/// errno or 0; `where` becomes the path that it is about.
int take_place(Open& open, unsigned flags, Writes how, std::string& where) {
  int words = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  words |= (flags & H5F_ACC_RDWR) != 0 && how != Writes::rehearsed ? O_RDWR : O_RDONLY;
  words |= (flags & H5F_ACC_CREAT) != 0 ? O_CREAT : 0;
  words |= (flags & H5F_ACC_EXCL) != 0 ? O_EXCL : 0;
  words |= (flags & H5F_ACC_TRUNC) != 0 ? O_TRUNC : 0;
  open.how = how;
  open.writable = (flags & H5F_ACC_RDWR) != 0 && how != Writes::rehearsed;
  open.file = ::open(open.path.c_str(), words, 0666);
  if (open.file < 0)
    return errno;
  // As HDF5 locks files: readers share this lock, and whoever opens the file for writing does not.
  if (open.writable && how == Writes::journaled && ::flock(open.file, LOCK_SH | LOCK_NB) != 0 &&
      errno == EWOULDBLOCK)
    return EWOULDBLOCK;
  if (how != Writes::direct) {
    where = journal_of(open.path);
    auto journal = std::make_unique<Journal>(open.path);
    if ((flags & H5F_ACC_CREAT) != 0) {
      ::unlink(journal_of(open.path).c_str());  // of a file that is no more
    } else if (open.writable) {
      if (const int problem = journal->finish(open.file))
        return problem;
    } else {
      Journal::Left left;
      if (const int problem = journal->read(open.file, left))
        return problem;
      open.pages = std::move(left.pages);
      open.end = static_cast<haddr_t>(left.end);
    }
    if (open.writable)
      open.journal = std::move(journal);
    where = open.path;
  }
  struct stat facts {};
  if (::fstat(open.file, &facts) != 0)
    return errno;
  open.device = facts.st_dev;
  open.inode = facts.st_ino;
  open.kept = facts.st_size;
  if (open.pages.empty())
    open.end = static_cast<haddr_t>(facts.st_size);
  return 0;
}

H5FD_t* open_callback(const char* name, unsigned flags, hid_t access, haddr_t) {
  try {
    const auto* info = static_cast<const Info*>(H5Pget_driver_info(access));
    auto open = std::make_unique<Open>();
    open->path = name;
    std::string where = name;
    if (const int problem =
            take_place(*open, flags, info == nullptr ? Writes::direct : info->how, where);
        problem != 0) {
      push("open", where,
           problem == EWOULDBLOCK ? "another program has it open for writing. Close it there (a "
                                    "notebook with h5py, say) and start again"
                                  : std::strerror(problem));
      if (open->file >= 0)
        ::close(open->file);
      return nullptr;
    }
    return open.release();
  } catch (...) {
    push("open", name, std::strerror(ENOMEM));
    return nullptr;
  }
}

/// A close that fails after all was flushed adds nothing to a failed sync; a file that must
/// be on the disk is synced.
herr_t close_callback(H5FD_t* file) {
  const std::unique_ptr<Open> open(&of(file));
  if (open->journal != nullptr)
    open->journal->settle(open->file);
  ::close(open->file);
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) {
  const auto key = [](const H5FD_t* file) { return std::pair(of(file).device, of(file).inode); };
  return key(a) < key(b) ? -1 : key(b) < key(a) ? 1 : 0;
}

/// A journaled file needs no accumulator of metadata: they wait in pages. HDF5 1.10.8 damages the
/// heap where it gets no memory for one that grows.
herr_t query(const H5FD_t* file, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
           H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  if (file == nullptr || of(file).how == Writes::direct ||
      (of(file).how == Writes::journaled && of(file).journal == nullptr))
    *flags |= H5FD_FEAT_ACCUMULATE_METADATA;
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
  return of(file).allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).allocated = end;
  return 0;
}
haddr_t end(const H5FD_t* file, H5FD_mem_t) {
  return of(file).end;
}
herr_t handle(H5FD_t* file, hid_t, void** out) {
  *out = &of(file);
  return 0;
}

/// Calls `each` with the page that waits, the first byte in it, how many, and where they lie in the
/// caller's memory.
template <class Each>
void for_pages(const Pages& pages, std::int64_t begin, std::size_t count, Each&& each) {
  constexpr auto size = static_cast<std::int64_t>(page_size);
  const std::int64_t stop = begin + static_cast<std::int64_t>(count);
  for (auto at = pages.lower_bound(begin / size); at != pages.end() && at->first * size < stop;
       ++at) {
    const std::int64_t from = std::max(begin, at->first * size),
                       to = std::min(stop, (at->first + 1) * size);
    each(at->second, static_cast<std::size_t>(from - at->first * size),
         static_cast<std::size_t>(to - from), static_cast<std::size_t>(from - begin));
  }
}

herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, void* out) {
  const Open& open = of(file);
  const auto begin = static_cast<std::int64_t>(address);
  if (const int problem = read_all(open.file, out, count, begin)) {
    push("read", open.path, std::strerror(problem));
    return -1;
  }
  for_pages(open.pages, begin, count,
            [&](const Page& page, std::size_t at, std::size_t bytes, std::size_t into) {
              std::memcpy(static_cast<std::byte*>(out) + into, page.data() + at, bytes);
            });
  return 0;
}

/// Pages that begin before the end of the last flush wait; what lies after them goes to the file.
int write_through(Open& open, std::int64_t begin, const std::byte* from, std::size_t count) {
  constexpr auto size = static_cast<std::int64_t>(page_size);
  const std::int64_t stop = begin + static_cast<std::int64_t>(count);
  const std::int64_t border = open.how == Writes::rehearsed ? stop
                              : open.journal == nullptr     ? 0
                                                            : (open.kept + size - 1) / size * size;
  const std::int64_t waits = std::min(stop, border);
  for (std::int64_t number = begin / size; number * size < waits; ++number) {
    const auto [at, fresh] = open.pages.try_emplace(number);
    if (fresh)
      if (const int problem = read_all(open.file, at->second.data(), page_size, number * size))
        return problem;
  }
  for (std::int64_t at = begin; at < waits;) {
    Page& page = open.pages.at(at / size);
    const std::int64_t bytes = std::min(waits - at, size - at % size);
    std::memcpy(page.data() + at % size, from + (at - begin), static_cast<std::size_t>(bytes));
    at += bytes;
  }
  const std::int64_t rest = std::max(begin, border);
  return rest >= stop ? 0
                      : write_all(open.file, from + (rest - begin),
                                  static_cast<std::size_t>(stop - rest), rest);
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, const void* from) {
  Open& open = of(file);
  if (!open.problem.empty())
    return 0;  // it is given up
  try {
    if (const int problem = write_through(open, static_cast<std::int64_t>(address),
                                          static_cast<const std::byte*>(from), count))
      return fail(open, "write", problem);
    open.end = std::max(open.end, address + count);
    open.changed = true;
    return 0;
  } catch (...) {
    return out_of_memory(open);
  }
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  Open& open = of(file);
  const bool changes = open.writable || open.how == Writes::rehearsed;
  if (!open.problem.empty() || !changes || open.end == open.allocated)
    return 0;
  open.end = open.allocated;
  open.changed = true;
  const auto size = static_cast<std::int64_t>(open.end);
  open.pages.erase(open.pages.lower_bound((size + static_cast<std::int64_t>(page_size) - 1) /
                                          static_cast<std::int64_t>(page_size)),
                   open.pages.end());
  if (open.writable && open.journal == nullptr && ::ftruncate(open.file, size) != 0)
    return fail(open, "truncate", errno);
  return 0;
}

herr_t flush_callback(H5FD_t* file, hid_t, hbool_t) {
  Open& open = of(file);
  if (!open.problem.empty() || open.journal == nullptr || !open.changed)
    return 0;
  try {
    const auto size = static_cast<std::int64_t>(open.end);
    if (const int problem = open.journal->replace(open.file, open.pages, size))
      return fail(open, "write", problem,
                  open.journal->whole() ? open.path : journal_of(open.path));
    open.pages.clear();
    open.kept = size;
    open.changed = false;
    return 0;
  } catch (...) {
    return out_of_memory(open);
  }
}

H5FD_class_t make_class() {
  H5FD_class_t made{};
#ifdef H5FD_CLASS_VERSION
  made.version = H5FD_CLASS_VERSION;
  made.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED + 1);
#endif
  made.name = "trireme";
  made.maxaddr = (haddr_t{1} << 63U) - 1;
  made.fc_degree = H5F_CLOSE_STRONG;
  made.fapl_size = sizeof(Info);
  made.open = open_callback;
  made.close = close_callback;
  made.cmp = compare;
  made.query = query;
  made.get_eoa = allocated;
  made.set_eoa = set_allocated;
  made.get_eof = end;
  made.get_handle = handle;
  made.read = read;
  made.write = write;
  made.flush = flush_callback;
  made.truncate = truncate;
  constexpr H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::ranges::copy(map, made.fl_map);
  return made;
}

hid_t driver() {
  static const H5FD_class_t made = make_class();
  static const hid_t id = TRIREME_H5(H5FDregister(&made));
  return id;
}

Open* state_of(hid_t file) noexcept {
  void* found = nullptr;
  return H5Fget_vfd_handle(file, H5P_DEFAULT, &found) < 0 ? nullptr : static_cast<Open*>(found);
}

}  // namespace

Properties file_access(Writes how) {
  Properties access(TRIREME_H5(H5Pcreate(H5P_FILE_ACCESS)));
  const Info info{how};
  TRIREME_H5(H5Pset_driver(access.get(), driver(), &info));
  TRIREME_H5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  TRIREME_H5(H5Pset_file_locking(access.get(), false, true));
  // Rows go to the pages at once: no buffers of whole chunks, which a flush would write whole, and
  // for lack of which HDF5 1.10.8 damages the heap.
  if (how != Writes::direct)
    TRIREME_H5(H5Pset_cache(access.get(), 0, 521, 0, 1));
  return access;
}

void give_up(hid_t file) noexcept {
  const Turn turn;
  detail::silence();
  if (Open* open = state_of(file); open != nullptr && open->problem.empty())
    open->problem = "given up";
}

std::string close_with_words(hid_t file) {
  const Turn turn;
  detail::silence();
  std::string words;
  if (Open* open = state_of(file); open != nullptr)
    open->last_words = &words;
  if (H5Fclose(file) < 0 && words.empty())
    words = "no reason given";
  return words;
}

herr_t close_file(hid_t file) {
  return close_with_words(file).empty() ? 0 : -1;
}

std::string write_problem(hid_t file) {
  const Turn turn;
  const Open* open = state_of(file);
  return open == nullptr ? "" : open->problem;
}

}  // namespace trireme::h5
