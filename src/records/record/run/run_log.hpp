// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/steps.jsonl: everything that a run recorded, as lines of text (log_line.hpp) in the order
// of events. It is the record; run.h5 is derived from it (run_file.hpp). `tail -f`, jq and pandas
// can read it during the run.
//
//   session      a start or resumption: date_and_time, first_step, ranks, machine, facts, deck
//   rewind       the run resumed after this step: rows of later steps above this line no longer
//                count
//   cut          the line above was truncated by a kill or a power cut
//   dropped      `what` ("validation" or "evaluation") was due after `step` and not finished: the
//                run had to stop. The next start makes it up, and a row of that step follows
//   step, validation, evaluation, checkpoint, skipped, noise_scale, norms, rank_spans,
//   rank_energy, bucket, anchor
//                rows of the tables of run.h5 (rows.hpp)
//   tokenizer, timing_fact, memory
//                single facts; a later one of the same name replaces an earlier one
//   run_file     run.h5 was written: its bytes and its CRC-32
//
// 1. Lines are only appended. Nothing is rewritten, not even at a resume.
// 2. append() hands a line to the operating system, so kill -9 loses none; sync() writes them to
//    the disk, so a power cut loses the lines since the last sync.
// 3. A reader skips lines that it cannot use: a last line without a line feed, lines whose checksum
//    does not match, and unknown kinds.
// 4. One thread uses a RunLog. Reading needs no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/descriptor.hpp"

#include "record/run/rows.hpp"

namespace trireme::record {

inline constexpr const char* run_log_name = "steps.jsonl";

/// The kinds of lines that change what other lines mean.
inline constexpr const char* rewind_kind = "rewind";
inline constexpr const char* cut_kind = "cut";
inline constexpr const char* run_file_kind = "run_file";

inline constexpr const char* dropped_kind = "dropped";
/// Those of single facts.
inline constexpr const char* tokenizer_kind = "tokenizer";
inline constexpr const char* timing_fact_kind = "timing_fact";
inline constexpr const char* memory_kind = "memory";

// The rows that RunRecord makes itself.

struct AnchorRow {
  std::int64_t first_step = 0, rank = 0;
  double calendar_s = 0;

  static constexpr TableInfo table{"anchor", "timings/anchors"};
  static void columns(auto& r, auto&& v) {
    v("first_step", r.first_step, "steps",
      "First step of a session; its anchors hold up to the next such step.");
    v("rank", r.rank, "rank", "Rank whose clock the anchor belongs to.");
    v("calendar_s", r.calendar_s, "seconds since 1970-01-01 00:00:00",
      "Calendar time at which begin_s of the rank's samples is 0.");
  }
};

/// A start or a resumption.
struct SessionRow {
  std::string date_and_time;
  std::int64_t first_step = 0, ranks = 0;
  std::string machine, facts, deck;

  static constexpr TableInfo table{"session", "sessions"};
  static void columns(auto& r, auto&& v) {
    v("first_step", r.first_step, "steps", "The first step of the session.");
    v("date_and_time", r.date_and_time, "", "When the session began, UTC.");
    v("ranks", r.ranks, "ranks", "Number of ranks of the session.");
    v("machine", r.machine, "", "Hosts of the ranks, in rank order.");
    v("facts", r.facts, "", "Versions and settings of the session, one per line.");
    v("deck", r.deck, "", "The resolved deck that the session's steps were made with.");
  }
};

/// Which rows still count: those of a step that no later rewind took back.
class Rewinds {
 public:
  /// In the order of the lines.
  void add(std::int64_t line, std::int64_t step);
  [[nodiscard]] bool keep(std::int64_t line, std::int64_t step) const;

 private:
  /// By line; `step` is the lowest of this rewind and all later ones.
  std::vector<std::pair<std::int64_t, std::int64_t>> lowest_;
};

struct LogFacts {
  bool exists = false;
  std::int64_t lines = 0;                 ///< that are whole
  std::vector<std::int64_t> damaged;      ///< numbers of lines that are not, from 1
  std::optional<std::int64_t> last_step;  ///< of the rows that count; nothing: it has none
  std::int64_t last_checkpoint = 0;       ///< the same of checkpoints
  /// Steps after which these are still to be made up.
  std::optional<std::int64_t> dropped_validation, dropped_evaluation;
  std::string run_id;  ///< "" where no session states it
  bool has_tokenizer = false;
  Rewinds rewinds;
  /// By size and CRC-32 of a run.h5 that the run wrote: the line that states it.
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> run_files;
  std::int64_t last_line = 0;  ///< its number, damaged or not
};

/// Calls `each` with the number of a line, from 1, and the line without its line feed. A last line
/// without one is left out. Throws StorageError.
void for_each_line(const std::string& path,
                   const std::function<void(std::int64_t, std::string_view)>& each);

/// Of the log at `path`. Throws StorageError when the system refuses.
LogFacts look_at_log(const std::string& path);

/// "line 7" or "lines 7, 9 and 11", of at most a few.
std::string lines_text(const std::vector<std::int64_t>& lines);

class RunLog {
 public:
  enum class Open : std::uint8_t { create, append };
  /// A new log in whose place nothing may be, or an existing one, whose last line is completed
  /// where it was cut off. Throws StorageError.
  RunLog(std::string path, Open how);

  /// `line` as log_line() makes it. Throws StorageError; nothing may be appended afterwards.
  void append(std::string_view line);
  /// Throws StorageError, also when another file, or none, is at the path now.
  void sync();
  /// Whether a line was appended since the last sync().
  [[nodiscard]] bool waits() const { return waits_; }
  /// False after a failure, and of one that was moved from.
  [[nodiscard]] bool usable() const { return usable_ && file_.is_open(); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  files::Descriptor file_;
  bool waits_ = false, usable_ = true;
};

}  // namespace trireme::record
