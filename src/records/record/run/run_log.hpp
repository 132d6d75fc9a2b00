// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/steps.jsonl: everything that a run recorded, as lines of text (log_line.hpp) in the order
// of events. It is the record; run.h5 is derived from it (run_file.hpp). `tail -f`, jq and pandas
// can read it during the run.
//
//   session      a start or resumption: date_and_time, first_step, ranks, machine, facts, deck
//   rewind       the run resumed after this step: rows of later steps above this line no longer
//                count
//   cut          the line above was truncated by a kill or a power cut
//   dropped      `what` ("validation" or "evaluation") was due after `step` but did not finish,
//               because the run had to stop. The next start repeats it and adds its row
//   step, validation, evaluation, checkpoint, skipped, noise_scale, norms, rank_spans,
//   rank_energy, bucket, anchor
//                rows of the tables of run.h5 (rows.hpp)
//   tokenizer, timing_fact, memory
//               single facts; a later one of the same name replaces an earlier one
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
/// Kinds of single facts.
inline constexpr const char* tokenizer_kind = "tokenizer";
inline constexpr const char* timing_fact_kind = "timing_fact";
inline constexpr const char* memory_kind = "memory";

// Kinds of rows that RunRecord itself creates.

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

/// The start of a run, or a resume.
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

/// Determines which rows are valid: those of steps that no later rewind withdrew.
class Rewinds {
 public:
  /// Call in the order of the lines.
  void add(std::int64_t line, std::int64_t step);
  [[nodiscard]] bool keep(std::int64_t line, std::int64_t step) const;

 private:
  /// By line; `step` is the lowest of this and all later rewinds.
  std::vector<std::pair<std::int64_t, std::int64_t>> lowest_;
};

struct LogFacts {
  bool exists = false;
  std::int64_t lines = 0;                 ///< number of valid lines
  std::vector<std::int64_t> damaged;      ///< numbers of the other lines, from 1
  std::optional<std::int64_t> last_step;  ///< last step with a valid row, if any
  std::int64_t last_checkpoint = 0;       ///< last step with a valid checkpoint row
  /// Steps after which a validation or an evaluation must still be repeated.
  std::optional<std::int64_t> dropped_validation, dropped_evaluation;
  std::string run_id;  ///< "" if no session states it
  bool has_tokenizer = false;
  Rewinds rewinds;
  /// By size and CRC-32 of a run.h5 or deck.resolved.yaml that the run wrote: the line's number.
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> run_files;
  std::int64_t last_line = 0;  ///< number of the last line, valid or not
};

/// Calls `each` with the number of a line, from 1, and the line without its line feed. A last line
/// without a line feed is omitted. Throws StorageError.
void for_each_line(const std::string& path,
                   const std::function<void(std::int64_t, std::string_view)>& each);

/// Reads the log at `path`. Throws StorageError if the system refuses.
LogFacts look_at_log(const std::string& path);

/// "line 7" or "lines 7, 9 and 11"; lists only the first few.
std::string lines_text(const std::vector<std::int64_t>& lines);

class RunLog {
 public:
  enum class Open : std::uint8_t { create, append };
  /// Creates a log, or opens an existing one; if its last line was cut off, ends that line. Throws
  /// StorageError, also if a log to be created exists.
  RunLog(std::string path, Open how);

  /// Appends a log_line(). Throws StorageError; nothing may be appended afterwards.
  void append(std::string_view line);
  /// Throws StorageError, also if the file at the path was removed or replaced.
  void sync();
  /// Whether a line was appended since the last sync().
  [[nodiscard]] bool waits() const { return waits_; }
  /// False after a failure, and if the object was moved from.
  [[nodiscard]] bool usable() const { return usable_ && file_.is_open(); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  files::Descriptor file_;
  bool waits_ = false, usable_ = true;
};

}  // namespace trireme::record
