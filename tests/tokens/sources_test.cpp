// SPDX-License-Identifier: Apache-2.0
#include "tokens/sources.hpp"

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokens/compressed.hpp"
#include "tokens/scratch.hpp"

#include "support/open_file_limit.hpp"

namespace {
/// The next call with this name fails with this error number.
struct Refusal {
  std::string call;
  int number = 0;
};
Refusal refusal;  // NOLINT: the calls below have no other way to it

bool is_refused(const char* call) {
  if (refusal.call != call)
    return false;
  refusal.call.clear();
  errno = refusal.number;
  return true;
}
}  // namespace

extern "C" DIR* opendir(const char* path) {
  return is_refused("opendir")
             ? nullptr
             : reinterpret_cast<decltype(&opendir)>(::dlsym(RTLD_NEXT, "opendir"))(path);
}
// Standard libraries open directories with either function.
extern "C" DIR* fdopendir(int file) {
  return is_refused("opendir")
             ? nullptr
             : reinterpret_cast<decltype(&fdopendir)>(::dlsym(RTLD_NEXT, "fdopendir"))(file);
}
extern "C" dirent* readdir(DIR* listing) {
  return is_refused("readdir")
             ? nullptr
             : reinterpret_cast<decltype(&readdir)>(::dlsym(RTLD_NEXT, "readdir"))(listing);
}
extern "C" int stat(const char* path, struct stat* facts) noexcept {
  using Call = int (*)(const char*, struct stat*);
  return is_refused("stat") ? -1 : reinterpret_cast<Call>(::dlsym(RTLD_NEXT, "stat"))(path, facts);
}

namespace trireme::tokens {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class Sources : public Scratch {
 protected:
  /// Paths relative to the test's directory.
  std::vector<std::string> names(const TextSources& sources) const {
    std::vector<std::string> result;
    for (const auto& file : sources.files)
      result.push_back(fs::path(file.path).lexically_relative(directory_).string());
    return result;
  }
};

TEST_F(Sources, DirectoriesInDepthSortedByBytesWithoutHiddenNames) {
  for (const char* name : {"t/b.txt", "t/B.txt", "t/a/z", "t/a/.hidden", "t/.git/config", "t/a.txt",
                           "t/a-b", "t/\xc3\xa9", "t/empty/"})
    if (std::string_view(name).ends_with('/'))
      fs::create_directories(at(name));
    else
      write(name, "text\n");
  EXPECT_THAT(names(find_text({at("t")})),
              ElementsAre("t/B.txt", "t/a/z", "t/a-b", "t/a.txt", "t/b.txt", "t/\xc3\xa9"));
}

TEST_F(Sources, WhatTheMachineRefusesIsNoMistakeOfTheUsers) {
  write("t/a", "text");
  const auto told = [&](const char* call, int number) {
    return storage_error([&] {
      refusal = {call, number};
      find_text({at("t")});
    });
  };
  for (const int number : {ENOMEM, EIO, EMFILE, ENFILE}) {
    EXPECT_THAT(told("stat", number), HasSubstr("look at " + at("t"))) << number;
    EXPECT_THAT(told("opendir", number), HasSubstr("list " + at("t"))) << number;
    EXPECT_THAT(told("readdir", number), HasSubstr("list " + at("t"))) << number;
  }
  EXPECT_THAT(told("opendir", ENOMEM), HasSubstr("Cannot allocate memory"));
  for (const auto& entry : {at("t/a"), at("t/*")})
    EXPECT_THAT(storage_error([&] {
                  const test::NoFurtherFile limit;
                  find_text({entry});
                }),
                HasSubstr("Too many open files"));
  EXPECT_THAT(names(find_text({at("t")})), ElementsAre("t/a")) << "and passes with its cause";
}

TEST_F(Sources, WhatMayNotBeLookedAtIsNotLeftOut) {
  write("t/a", "text");
  refusal = {"opendir", EACCES};
  EXPECT_THAT(user_error([&] { find_text({at("t")}); }), HasSubstr("Permission denied"));
  fs::create_symlink(std::string(300, 'x'), at("t/long"));
  for (const auto& entry : {at("t"), at("t/*")})
    EXPECT_THAT(user_error([&] { find_text({entry}); }), HasSubstr("File name too long"));
}

TEST_F(Sources, EntriesInTheDecksOrder) {
  write("b", "b");
  write("a/x", "x");
  const auto sources = find_text({at("b"), at("a")});
  EXPECT_THAT(names(sources), ElementsAre("b", "a/x"));
  EXPECT_EQ(sources.files[1].size, 1);
}

TEST_F(Sources, GlobsAreSortedAndMayMatchDirectories) {
  for (const char* name : {"g/b.hpp", "g/a.hpp", "g/c.cpp", "g/d.hpp/inner"}) write(name, "x");
  EXPECT_THAT(names(find_text({at("g/*.hpp")})),
              ElementsAre("g/a.hpp", "g/b.hpp", "g/d.hpp/inner"));
}

TEST_F(Sources, APathThatLooksLikeAGlobIsTakenByItsName) {
  write("odd[1]", "x");
  write("odd1", "y");
  EXPECT_THAT(names(find_text({at("odd[1]")})), ElementsAre("odd[1]"));
}

TEST_F(Sources, LinksNeverLoopNorRepeat) {
  write("12/vector", "v");
  write("12/bits/alloc", "a");
  fs::create_directory_symlink("12", at("12.2.0"));      // as in /usr/include/c++
  fs::create_directory_symlink("..", at("12/bits/up"));  // a loop
  fs::create_symlink("vector", at("12/vector.hpp"));
  fs::create_symlink("nowhere", at("12/dangling"));
  const auto sources = find_text({directory_.string()});
  EXPECT_THAT(names(sources), ElementsAre("12/bits/alloc", "12/vector"));
  EXPECT_EQ(sources.repeated, 3);
  EXPECT_EQ(sources.left_out, 1);
}

TEST_F(Sources, ALinkToADirectoryByNameIsFollowed) {
  write("real/file", "x");
  fs::create_directory_symlink("real", at("link"));
  EXPECT_THAT(names(find_text({at("link")})), ElementsAre("link/file"));
}

TEST_F(Sources, SpecialFilesAreNotOpened) {
  write("d/file", "x");
  ASSERT_EQ(::mkfifo(at("d/pipe").c_str(), 0600), 0);  // opening it would wait for a writer
  const auto sources = find_text({at("d")});
  EXPECT_EQ(sources.files.size(), 1U);
  EXPECT_EQ(sources.left_out, 1);
  EXPECT_THAT(user_error([&] { find_text({at("d/pipe")}); }),
              HasSubstr("neither a file nor a directory"));
}

TEST_F(Sources, EveryFindingAtOnce) {
  fs::create_directories(at("nothing/.hidden"));
  const std::string empty = write("empty", "");
  fs::create_symlink("nowhere", at("dangling"));
  const std::string text = user_error([&] {
    find_text({at("missing"), at("nothing"), empty, at("*.none"), at("dangling"), ""});
  });
  EXPECT_THAT(text, HasSubstr("data.train.text: '" + at("missing") + "': No such file"));
  EXPECT_THAT(text, HasSubstr("directory '" + at("nothing") + "' contains no text file"));
  EXPECT_THAT(text, HasSubstr("'" + empty + "' is empty"));
  EXPECT_THAT(text, HasSubstr("no file matches '" + at("*.none") + "'"));
  EXPECT_THAT(text, HasSubstr("'" + at("dangling") + "': No such file"));
  EXPECT_THAT(text, HasSubstr("an entry is empty"));
}

TEST_F(Sources, ManyFindingsAreCut) {
  const std::vector<std::string> entries(50, at("missing"));
  try {
    find_text(entries);
    FAIL() << "no UserError";
  } catch (const UserError& error) {
    ASSERT_EQ(error.findings().size(), 21U);
    EXPECT_EQ(error.findings().back().text, "and 30 more");
  }
}

TEST_F(Sources, TheDirectoryOfThisRunIsNoText) {
  write("d/text", "x");
  write("run/log.txt", "x");
  write("run/lock", fmt::format("process {} on here\n", ::getpid()));
  fs::create_directory_symlink(at("run"), at("d/link"));
  EXPECT_THAT(user_error([&] { find_text({at("d")}); }),
              HasSubstr("'" + at("d/link/lock") + "' belongs to this run"));
  write("run/lock", fmt::format("process {}0 on here\n", ::getpid()));  // another run is allowed
  EXPECT_EQ(find_text({at("d")}).files.size(), 3U);
}

// Root can read everything, so a test run as root becomes another user for a moment.
TEST_F(Sources, UnreadableFilesAndDirectoriesAreErrors) {
  write("d/good", "x");
  fs::permissions(at("d"), fs::perms(0755));
  fs::permissions(write("d/secret", "x"), fs::perms::none);
  fs::create_directories(at("d/closed"));
  fs::permissions(at("d/closed"), fs::perms::none);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const std::string text = user_error([&] { find_text({at("d")}); });
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(at("d/closed"), fs::perms::owner_all);
  EXPECT_THAT(text, HasSubstr("'" + at("d/secret") + "': Permission denied"));
  EXPECT_THAT(text, HasSubstr("directory '" + at("d/closed") + "': Permission denied"));
  EXPECT_THAT(text, Not(HasSubstr("good")));
}

TEST_F(Sources, TheFingerprintSeesEveryChange) {
  write("d/a", "one");
  const std::string b = write("d/b", "two");
  const auto before = find_text({at("d")}).fingerprint();
  EXPECT_EQ(find_text({at("d")}).fingerprint(), before);
  write("d/a", "three");
  const auto longer = find_text({at("d")}).fingerprint();
  EXPECT_NE(longer, before);
  fs::last_write_time(b, fs::last_write_time(b) + std::chrono::nanoseconds(1000));
  const auto touched = find_text({at("d")}).fingerprint();
  EXPECT_NE(touched, longer);
  const auto time = fs::last_write_time(b);
  write("d/b", "owt");
  fs::last_write_time(b, time);
  EXPECT_NE(find_text({at("d")}).fingerprint(), touched) << "of equal size and time";
  write("d/b", "two");
  fs::last_write_time(b, time);
  fs::rename(b, at("d/c"));
  EXPECT_NE(find_text({at("d")}).fingerprint(), touched);
}

TEST_F(Sources, TheFingerprintSeesBothEndsWhereAllTimesAreEqual) {
  auto sources = find_text({write("a", std::string(300'000, 'a'))});
  const auto before = sources.fingerprint();
  for (const std::size_t place : {0U, 65'535U, 299'999U}) {
    std::string text(300'000, 'a');
    text[place] = 'b';
    write("a", text);
    EXPECT_NE(sources.fingerprint(), before) << place;  // mtimes of the first scan
  }
}

TEST_F(Sources, ShardsAreFilesAndGlobsOnly) {
  write("s/x_2.bin", "x");
  write("s/x_1.bin", "x");
  EXPECT_THAT(find_shards({at("s/*.bin")}), ElementsAre(at("s/x_1.bin"), at("s/x_2.bin")));
  EXPECT_THAT(user_error([&] { find_shards({at("s")}); }),
              HasSubstr("data.train.tokens: '" + at("s") + "' is a directory"));
  EXPECT_EQ(find_shards({at("s/x_1.bin"), at("s/*.bin")}).size(), 2U);
  EXPECT_THAT(user_error([&] {
                find_shards({at("s/x_1.bin"), at("s/./x_1.bin")});
              }),
              HasSubstr("x_1.bin' is given twice"));
  EXPECT_EQ(find_file(at("s/x_[1].bin"), "--prompts"), at("s/x_1.bin"));
  EXPECT_THAT(user_error([&] { find_file(at("s/*.bin"), "--prompts"); }),
              HasSubstr("--prompts: 2 files match"));
}

// glob(3) treats ** as *, so deeper files would be missing without a message.
TEST_F(Sources, AGlobOfAnyDepthIsRefused) {
  write("s/a.txt", "x");
  write("s/t/u/b.txt", "x");
  EXPECT_THAT(user_error([&] { find_text({at("s/**/*.txt")}); }),
              HasSubstr("Give the directory itself"));
  EXPECT_THAT(user_error([&] { find_shards({at("s/**/*.txt")}); }), HasSubstr("for each depth"));
}

// The content determines a file's format, whether the file was found or named.
TEST_F(Sources, FormatsThatAreNotTextAreErrorsWithARemedy) {
  using namespace std::string_literals;
  for (const auto& [bytes, what] :
       {std::pair{"PAR1\x15\x04rest"s, "is a Parquet file, not text. Write its text column"},
        {"ARROW1\0\0"s, "is an Arrow file"},
        {"PK\x03\x04"s, "is a zip archive, not text. Unpack it"},
        {"\x93NUMPY\x01\0"s, "is a NumPy array, not text. Give files of tokens in `tokens`"},
        {"\x89HDF\r\n\x1a\n"s, "is an HDF5 file"},
        {"\x10\0\0\0\0\0\0\0{\"a\":{}"s, "is a safetensors file"},
        {"\x88\xd8\x34\x01\x01\0\0\0"s, "is a token file of llm.c"},
        {"MMIDIDX\0\0"s, "is an index of Megatron"},
        {"\xff\xfet\0e\0"s, "is text in UTF-16"},
        {std::string(257, '\0') + "ustar"s, "is a tar archive"},
        {gzipped(std::string(257, '\0') + "ustar"), "contains a tar archive"},
        {gzipped(gzipped("text")), "It is compressed twice."},
        {gzipped(std::string(999, 'x')).substr(0, 15), "the gzip data are cut short"}}) {
    const std::string path = write("d/file.txt", bytes);
    for (const auto& entry : {path, at("d"), at("d/*.txt")})
      EXPECT_THAT(user_error([&] { find_text({entry}); }), HasSubstr(what)) << entry;
  }
  write("d/file.txt", gzipped("text"));
  EXPECT_TRUE(find_text({at("d")}).files.at(0).compressed);
}

TEST_F(Sources, BinaryFilesAreSkippedUnlessNamed) {
  const std::string path = write("d/binary", "\x01\x02 \xff" + std::string(50, '\0'));
  write("d/text", std::string(2000, 'x') + std::string(20, '\0') + "\x1b[0m\b\f");
  const auto found = find_text({at("d")});
  EXPECT_THAT(names(found), ElementsAre("d/text"));
  ASSERT_EQ(found.binary.size(), 1U);
  EXPECT_EQ(found.binary[0].path, path);
  const auto named = find_text({path});
  EXPECT_THAT(names(named), ElementsAre("d/binary"));
  EXPECT_THAT(named.binary_but_named, ElementsAre(path));

  const auto said = [&](const TextSources& sources, const std::string& field = "") {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    {
      Log log(true, "rank 0");
      report_sources(sources, field, "--text", log);
    }
    return testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(found), testing::AllOf(HasSubstr("--text: skipped 1 binary file"),
                                          HasSubstr("skipped " + path + ", which holds 3 % of")));
  EXPECT_THAT(said(named), HasSubstr(path + " is read as text because it is given by"));
  write("d/more", std::string(20000, 'x'));
  EXPECT_THAT(said(find_text({at("d")})), testing::Not(HasSubstr(path)));

  for (const char* name : {"lines/a.jsonl", "lines/b.ndjson.gz"}) {
    const std::string lines = write(name, gzipped("{}\n"));
    EXPECT_THAT(said(find_text({lines})), HasSubstr(lines + " is read as plain text")) << name;
    EXPECT_EQ(said(find_text({lines}), "text"), "") << name;
  }
}

}  // namespace
}  // namespace trireme::tokens
