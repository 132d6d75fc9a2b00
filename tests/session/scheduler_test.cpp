// SPDX-License-Identifier: Apache-2.0
#include "session/scheduler.hpp"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <future>
#include <limits>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "device/recorder.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::session {
namespace {

struct Variable {
  const char* name;
  std::string value;
};

/// Sets environment variables of a job while it exists.
class Environment {
 public:
  explicit Environment(std::initializer_list<Variable> variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<Variable> variables_;
};

class Scheduler : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_END_TIME",
                             "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "FLUX_ENCLOSING_ID"})
      ::unsetenv(name);
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
};

void unexpected(const std::string& warning) {
  ADD_FAILURE() << warning;
}

using Words = std::vector<std::string>;

TEST_F(Scheduler, IsRecognizedByTheEnvironmentOfItsJobs) {
  EXPECT_TRUE(scheduler_job().question.empty());
  {
    const Environment job{{"SLURM_JOB_ID", "12"}};
    EXPECT_EQ(scheduler_job().name, "Slurm job 12");
    EXPECT_EQ(scheduler_job().number, "12");
    EXPECT_EQ(scheduler_job().index, "");
    EXPECT_EQ(scheduler_job().question, (Words{"squeue", "-h", "-j", "12", "-o", "%L"}));
  }
  {
    // The job id of this task is that of the array: `squeue -j 12` would list all tasks.
    const Environment job{
        {"SLURM_JOB_ID", "12"}, {"SLURM_ARRAY_JOB_ID", "12"}, {"SLURM_ARRAY_TASK_ID", "3"}};
    EXPECT_EQ(scheduler_job().name, "Slurm job 12_3");
    EXPECT_EQ(scheduler_job().number, "12");
    EXPECT_EQ(scheduler_job().index, "3");
    EXPECT_EQ(scheduler_job().question, (Words{"squeue", "-h", "-j", "12_3", "-o", "%L"}));
  }
  {
    const Environment job{{"PBS_JOBID", "12[3].server"}, {"PBS_ARRAY_INDEX", "3"}};
    EXPECT_EQ(scheduler_job().name, "PBS job 12[3].server");
    EXPECT_EQ(scheduler_job().number, "12");
    EXPECT_EQ(scheduler_job().index, "3");
    EXPECT_EQ(scheduler_job().question, (Words{"qstat", "-f", "12[3].server"}));
  }
  {
    const Environment job{{"LSB_JOBID", "12"}, {"LSB_JOBINDEX", "0"}};
    EXPECT_EQ(scheduler_job().name, "LSF job 12");
    EXPECT_EQ(scheduler_job().index, "");
  }
  {
    const Environment job{{"LSB_JOBID", "12"}, {"LSB_JOBINDEX", "3"}};
    EXPECT_EQ(scheduler_job().index, "3");
    EXPECT_EQ(scheduler_job().question, (Words{"bjobs", "-noheader", "-o", "time_left", "12[3]"}));
  }
  {
    // A Flux instance inside of a Slurm job: the Flux job is the inner one.
    const Environment job{{"FLUX_JOB_ID", "f2Tw"}, {"SLURM_JOB_ID", "12"}};
    EXPECT_EQ(scheduler_job().name, "Flux job f2Tw");
    EXPECT_EQ(scheduler_job().question, (Words{"flux", "job", "timeleft"}));
  }
  {
    const Environment job{{"FLUX_ENCLOSING_ID", "f1"}, {"FLUX_JOB_ID", "f2Tw"}};
    EXPECT_EQ(scheduler_job().number, "f1");
  }
  {
    const Environment pod{{"JOB_COMPLETION_INDEX", "4"}};
    EXPECT_EQ(scheduler_job().index, "4");
    EXPECT_EQ(scheduler_job().name, "");
  }
}

TEST_F(Scheduler, OfSlurmTellsTheTimeLeft) {
  const auto left = [](const char* text) { return seconds_left("squeue", text, 0); };
  EXPECT_EQ(left("59:31\n"), 59 * 60 + 31);
  EXPECT_EQ(left("0:00\n"), 0);
  EXPECT_EQ(left("3:59:31\n"), 3 * 3600 + 59 * 60 + 31);
  EXPECT_EQ(left("2-03:59:31\n"), 2 * 86400 + 3 * 3600 + 59 * 60 + 31);
  EXPECT_EQ(left("5:00\n7:00\n"), 300) << "the first component of a heterogeneous job";
  EXPECT_TRUE(std::isinf(left("UNLIMITED\n").value()));
  for (const char* unknown : {"", "\n", "INVALID\n", "NOT_SET\n", "N/A\n"})
    EXPECT_EQ(left(unknown), std::nullopt) << unknown;
}

TEST_F(Scheduler, OfPbsTellsStartAndWalltime) {
  // Output of PBS Professional 2022 at a site, shortened.
  const std::string text =
      "Job Id: 12.server\n"
      "    Job_Name = trireme\n"
      "    resources_used.walltime = 00:10:02\n"
      "    job_state = R\n"
      "    qtime = Thu Nov 26 09:59:00 2026\n"
      "    Resource_List.place = scatter\n"
      "    Resource_List.walltime = 26:00:00\n"
      "    stime = Thu Nov 26 10:00:00 2026\n"
      "    Variable_List = PBS_O_HOME=/home/me,PBS_O_LANG=C,\n"
      "\tPBS_O_WORKDIR=/home/me\n";
  constexpr double start = 1795687200;  // date -u -d '2026-11-26 10:00:00' +%s
  EXPECT_EQ(seconds_left("qstat", text, start + 605), 26 * 3600 - 605);
  EXPECT_EQ(seconds_left("qstat", text, start - 3000), 26 * 3600 - 602) << "the clock was set back";
  const auto with = [&](const std::string& old, const std::string& fresh) {
    std::string changed = text;
    changed.replace(changed.find(old), old.size(), fresh);
    return seconds_left("qstat", changed, start + 605);
  };
  EXPECT_EQ(with("stime = Thu", "stime = 1795687200 (Thu"), 26 * 3600 - 605);
  EXPECT_EQ(with("    stime = Thu Nov 26 10:00:00 2026\n", ""), 26 * 3600 - 602);
  EXPECT_TRUE(std::isinf(with("    Resource_List.walltime = 26:00:00\n", "").value()));
  EXPECT_EQ(seconds_left("qstat", "", start), std::nullopt);
}

TEST_F(Scheduler, OfLsfTellsHoursAndMinutes) {
  const auto left = [](const char* text) { return seconds_left("bjobs", text, 0); };
  EXPECT_EQ(left("1:45 L\n"), 104 * 60 + 1);
  EXPECT_EQ(left("0:1 L\n"), 1);
  EXPECT_EQ(left("00:01:30 L\n"), 90);
  EXPECT_TRUE(std::isinf(left("-\n").value()));
  EXPECT_EQ(left("1:45 E\n"), std::nullopt) << "an estimate ends no job";
  EXPECT_EQ(left("0:0 X\n"), std::nullopt);
  EXPECT_EQ(left("Job <12> is not found\n"), std::nullopt);
}

TEST_F(Scheduler, OfFluxTellsSeconds) {
  const auto left = [](const char* text) { return seconds_left("flux", text, 0); };
  EXPECT_EQ(left("300\n"), 300);
  EXPECT_EQ(left("0\n"), 0);
  EXPECT_TRUE(std::isinf(left("4294967295\n").value()));
  EXPECT_EQ(left(""), std::nullopt);
}

/// A command of a scheduler, which prints `text` and counts its calls in the file `calls`.
class Command {
 public:
  Command(const std::string& name, const std::string& script) {
    const std::string path = scratch_.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\necho called >>" << scratch_.path() << "/calls\n"
                        << script << '\n';
    ::chmod(path.c_str(), 0755);
    before_ = std::getenv("PATH");
    ::setenv("PATH", (scratch_.path() + ":" + before_).c_str(), 1);
  }
  ~Command() { ::setenv("PATH", before_.c_str(), 1); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  [[nodiscard]] bool was_called() const { return std::ifstream(scratch_.path() + "/calls").good(); }

 private:
  test::ScratchDirectory scratch_;
  std::string before_;
};

template <class Happened>
void wait_until(const Happened& happened) {
  while (!happened()) std::this_thread::yield();  // the test has a timeout
}

TEST_F(Scheduler, TellsTheEnergyOfAStepIfItCountsIt) {
  const auto told = [](const std::string& script) {
    const Command sstat("sstat", "[ \"$*\" = '-n -P -j 7.0 -o ConsumedEnergyRaw' ] && " + script);
    return slurm_joules();
  };
  EXPECT_EQ(told("echo 5"), std::nullopt) << "outside of a step";
  const Environment step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(told("echo 81234"), 81234);
  for (const char* nothing : {"echo", "echo 0", "echo 18446744073709551614", "exit 1"})
    EXPECT_EQ(told(nothing), std::nullopt) << nothing;
}

TEST_F(Scheduler, LimitsTheTimeByItsAnswer) {
  const Command flux("flux", "[ \"$*\" = 'job timeleft' ] && echo 1000");
  const Environment job{{"FLUX_JOB_ID", "f7"}};
  SignalScope signals;
  signals.training_begins();
  const double now = device::steady_seconds();
  const JobClock clock(now + 1e6, signals, unexpected);
  wait_until([&] { return signals.deadline() < now + 1e5; });
  EXPECT_NEAR(signals.deadline(), now + 995, 60);
  EXPECT_EQ(
      signals.text_of(StopReason::time_limit),
      "the time limit of Flux job f7 (flux) leaves no time for another step and a checkpoint");
}

TEST_F(Scheduler, MayTakeALimitBack) {
  const Command squeue("squeue", "echo UNLIMITED");
  const double now = device::calendar_seconds();
  const Environment job{{"SLURM_JOB_ID", "7"},
                        {"SLURM_JOB_END_TIME", std::to_string(static_cast<long>(now) + 100)}};
  SignalScope signals;
  signals.training_begins();
  const JobClock clock(1e300, signals, unexpected);
  wait_until([&] { return signals.deadline() == 1e300; });
}

TEST_F(Scheduler, ThatFailsOrSaysThatTheJobHasEndedChangesNothing) {
  for (const char* script : {"echo 0", "exit 1", "echo 10; exit 1", "echo nonsense"}) {
    const Command flux("flux", script);
    const Environment job{{"FLUX_JOB_ID", "f7"}};
    SignalScope signals;
    signals.training_begins();
    {
      const JobClock clock(1e300, signals, unexpected);
      wait_until([&] { return flux.was_called(); });
    }
    EXPECT_EQ(signals.deadline(), 1e300) << script;
  }
}

TEST_F(Scheduler, ThatDoesNotAnswerDelaysNoEnd) {
  const Command flux("flux", "exec sleep 600");
  const Environment job{{"FLUX_JOB_ID", "f7"}};
  SignalScope signals;
  signals.training_begins();
  const JobClock clock(1e300, signals, unexpected);
  wait_until([&] { return flux.was_called(); });
}

TEST_F(Scheduler, ThatTellsNoEndIsWarnedOfOnceWhereNothingElseDoes) {
  constexpr double none = std::numeric_limits<double>::infinity();
  const Environment job{{"FLUX_JOB_ID", "f7"}};
  for (const char* script : {"exit 127", "echo nonsense"}) {
    const Command flux("flux", script);
    SignalScope signals;
    signals.training_begins();
    std::promise<std::string> warning;  // a second one throws
    const JobClock clock(none, signals, [&](const std::string& text) { warning.set_value(text); });
    EXPECT_EQ(warning.get_future().get(),
              "`flux job timeleft` failed or does not tell when Flux job f7 ends, so the run may "
              "be killed then without a checkpoint. Set run.walltime to less than the time limit "
              "of the job, or put flux on PATH")
        << script;
  }
}

TEST_F(Scheduler, OfSlurmTellsTheEndInTheEnvironment) {
  constexpr double now = 1.7e9;
  std::string warning;
  const auto told = [&](const char* text) {
    const Environment job{{"SLURM_JOB_END_TIME", text}};
    warning.clear();
    return slurm_end(now, warning);
  };
  EXPECT_EQ(told("1790000000"), 1.79e9);
  for (const char* none : {"", "0", "-5", "4294967295", "4294967294"}) {
    EXPECT_EQ(told(none), std::nullopt) << none;
    EXPECT_EQ(warning, "") << none;
  }
  for (const char* wrong : {"soon", "17x", "1000000000", "1700000000"}) {
    EXPECT_EQ(told(wrong), std::nullopt) << wrong;
    EXPECT_NE(warning.find(wrong), std::string::npos) << warning;
  }
  EXPECT_EQ(slurm_end(now, warning), std::nullopt);
}

}  // namespace
}  // namespace trireme::session
