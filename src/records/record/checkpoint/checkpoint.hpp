// SPDX-License-Identifier: Apache-2.0
// Checkpoints store the state of a run by parameter, without buckets, padding or rank count. So a
// run that was saved on N ranks resumes on M ranks with any bucket size.
//
// Directories and files: docs/reference/checkpoint.md. `latest` names the newest one, for users.
// The pieces of a rank are 1-D datasets with the attribute `begin`; the manifest's virtual datasets
// over them let h5py and h5dump see whole tensors. The hash of a piece is hash_elements
// (base/hash.hpp), and a parameter's is the sum over its pieces. So it does not depend on which
// rank wrote which piece, one pass computes both, and a reader checks the data while it reads.
//
// 1. Everything is written into step-N.tmp and synced, the manifest last; then the directory is
//    renamed. So a directory named step-N is complete, or was damaged later. The directories decide
//    which checkpoints there are; `latest` is a hint. The log of the record is synced before the
//    manifest is written.
// 2. A save removes temporary directories of an earlier crash, by the exact names that a save
//    uses, and afterwards the oldest complete checkpoints that Retention does not keep; never the
//    one just written, and never one that it cannot read. A failure to remove is a warning.
// 3. Collective calls end alike on all ranks (comm/control/together.hpp): if one fails, all throw.
// 4. Views are host memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "record/run/name_values.hpp"

namespace trireme::record {

/// Prefix of the names of states that may have only the first elements of each parameter.
inline constexpr std::string_view partial_state = "partial_";

/// A contiguous range of elements of one parameter in one state ("parameter", "moment1", …).
template <class V>
struct SlabOf {
  std::string state;
  ParameterIndex parameter{};
  std::int64_t begin = 0;  ///< first element within the parameter
  V data;
};
using Slab = SlabOf<ConstView>;
using MutableSlab = SlabOf<View>;

struct CheckpointFacts {
  std::int64_t step = 0;          ///< completed steps
  std::uint64_t next_sample = 0;  ///< global index of the next sample to train on
  std::uint64_t seed = 0;
  NameValues model;      ///< sizes and options that must be equal on load
  NameValues more;       ///< versions, precision, run, data, …: not compared here
  NameValues deck = {};  ///< all keys of the deck that its run had; empty before format 2.1
  /// text::Tokenizer::serialized() of the data's tokenizer; empty in checkpoints before format 2.2,
  /// and if it was unknown.
  std::string tokenizer = {};
};

/// Which complete checkpoints a save keeps.
///
/// 1. The `keep` newest ones, including milestones; all of them if `keep` is 0.
/// 2. Every milestone: its step is a multiple of `keep_every` (0: none is), or its facts mark it as
///    a milestone, so a change of `keep_every` does not remove it.
struct Retention {
  std::int64_t keep = 0;
  std::int64_t keep_every = 0;

  // Implicit: most callers have a number alone. NOLINTNEXTLINE(google-explicit-constructor)
  Retention(std::int64_t newest = 0, std::int64_t every = 0) : keep(newest), keep_every(every) {}
  [[nodiscard]] bool milestone(std::int64_t step) const {
    return keep_every > 0 && step % keep_every == 0;
  }
};

/// Fields other than the directory are set on rank 0 only.
struct SavedCheckpoint {
  std::string directory;
  std::int64_t bytes = 0;             ///< of all ranks' files
  double seconds = 0;                 ///< slowest rank's file, manifest and commit, all synced
  std::vector<std::string> warnings;  ///< what could not be removed and why, each once
};

struct CheckpointPlace {
  std::string directory;
  std::int64_t step = 0;  ///< from its name
};

struct FoundCheckpoint : CheckpointPlace {
  bool whole = false;       ///< manifest readable, every file present with its size
  std::string problem;      ///< why it is not whole
  bool unreadable = false;  ///< a system error prevented reading it, so `whole` is unknown
  // From the manifest, if it could be read:
  bool milestone = false;     ///< written as one (Retention)
  std::int64_t bytes = 0;     ///< of all ranks' files
  int ranks = 0;              ///< number of ranks that wrote it
  std::string date_and_time;  ///< when it was written, UTC
};

/// Collective. Writes RUN_DIR/checkpoints/step-N from the slabs of all ranks and waits until it is
/// complete (checkpoint_writer.hpp does not wait). Together the slabs must cover each (state,
/// parameter) exactly once; of a partial_state, only its first elements. Each state has one dtype.
///
/// Throws:   StorageError when writing fails (FailedElsewhere on the other ranks); ContractError
///           when slabs overlap or leave a hole.
SavedCheckpoint save_checkpoint(const std::string& run_directory,
                                const layout::Plan& plan,
                                const CheckpointFacts& facts,
                                std::span<const Slab> mine,
                                Retention retention,
                                comm::World& world);

/// Collective. Fills every rank's slabs from `directory`, written by any number of ranks, and
/// returns its facts. Rank 0 reads the manifest; every rank reads the bytes that it needs. Each
/// element of a (state, parameter) must be needed by the same number of ranks. If the dtypes
/// differ, fp32 and bf16 are converted (rounded to nearest even).
///
/// Throws:   UserError naming the file and what to do: truncated or damaged pieces, another format
///           version, another model (expect_model()), a missing file or state.
CheckpointFacts load_checkpoint(const std::string& directory,
                                const layout::Plan& plan,
                                const NameValues& model,
                                std::span<const MutableSlab> wanted,
                                comm::World& world);

/// Reads the facts without the rank files. Throws UserError as load_checkpoint().
CheckpointFacts read_facts(const std::string& directory);
/// Throws UserError naming every difference between the model of the checkpoint and that of a run.
void expect_model(const std::string& directory, const NameValues& theirs, const NameValues& ours);

/// All checkpoints in RUN_DIR/checkpoints, oldest first; empty if there are none. Temporary
/// directories are omitted. Not collective.
std::vector<FoundCheckpoint> list_checkpoints(const std::string& run_directory);
/// The newest checkpoint by its name, even if it is damaged: load_checkpoint then reports the
/// damage. Opens no file. Not collective: call it on rank 0 and broadcast.
std::optional<CheckpointPlace> newest_checkpoint(const std::string& run_directory);
/// The same for a directory of checkpoints, such as checkpoint.directory.
std::optional<CheckpointPlace> newest_checkpoint_in(const std::string& checkpoints);
/// A message if checkpoints/latest cannot be read or names another checkpoint than `newest`, the
/// directory of the newest one; else "".
std::string doubt_latest(const std::string& run_directory, const std::string& newest);

// The names of facts that a checkpoint holds (CheckpointFacts::more).

inline constexpr const char* data_hash_fact = "data_hash";
inline constexpr const char* run_id_fact = "run_id";
/// The position in the data (batches::Dataset::position).
inline constexpr const char* data_position_fact = "data_position";
/// The hash of the tokenizer, or unknown_tokenizer.
inline constexpr const char* tokenizer_fact = "tokenizer";
inline constexpr const char* unknown_tokenizer = "unknown";
/// Path, format and hash of the initial weights (weights::Origin). These facts remain with the run.
inline constexpr const char* origin_path_fact = "initial_weights";
inline constexpr const char* origin_format_fact = "initial_weights_format";
inline constexpr const char* origin_hash_fact = "initial_weights_hash";

}  // namespace trireme::record
