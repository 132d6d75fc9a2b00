// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/routes.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/pairwise.hpp"

namespace trireme::comm {
namespace {

/// An expression in postfix: ranks, and `plus` after its two operands.
using Postfix = std::vector<int>;
constexpr int plus = -1;
constexpr int many_hosts = -1;

void append_tree(Postfix& all, int first, int count) {
  if (count == 1) {
    all.push_back(first);
    return;
  }
  const int left = first_half(count);
  append_tree(all, first, left);
  append_tree(all, first + left, count - left);
  all.push_back(plus);
}

void append_fold(Postfix& all, std::span<const int> ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    all.push_back(ranks[i]);
    if (i > 0)
      all.push_back(plus);
  }
}

Postfix expression_of(Reduction reduction, const Hosts& hosts) {
  Postfix all;
  if (reduction == Reduction::tree) {
    append_tree(all, 0, hosts.ranks());
  } else if (reduction == Reduction::ordered) {
    std::vector<int> ranks(static_cast<std::size_t>(hosts.ranks()));
    std::iota(ranks.begin(), ranks.end(), 0);
    append_fold(all, ranks);
  } else {
    for (int host = 0; host < hosts.count(); ++host) {
      append_fold(all, hosts.members(host));
      if (host > 0)
        all.push_back(plus);
    }
  }
  return all;
}

/// A maximal part of the expression whose terms are on one host.
struct Term {
  int host = 0;
  std::size_t begin = 0, end = 0;  // in the expression

  [[nodiscard]] bool alone() const { return end - begin == 1; }
};

std::vector<Term> terms_of(const Postfix& all, const Hosts& hosts) {
  std::vector<Term> stack, terms;
  const auto keep = [&](const Term& part) {
    if (part.host != many_hosts)
      terms.push_back(part);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != plus) {
      stack.push_back({hosts.host_of(all[i]), i, i + 1});
      continue;
    }
    const Term right = stack.back();
    stack.pop_back();
    Term& left = stack.back();
    if (left.host != right.host || left.host == many_hosts) {
      keep(left);
      keep(right);
      left.host = many_hosts;
    }
    left.end = i + 1;
  }
  keep(stack.back());
  std::ranges::sort(terms, {}, &Term::begin);
  return terms;
}

/// Consecutive ranks of one host.
struct Segment {
  int host = 0;
  int first = 0, count = 0;
};

std::vector<Segment> segments_of(const Hosts& hosts) {
  std::vector<Segment> segments;
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    if (segments.empty() || segments.back().host != hosts.host_of(rank))
      segments.push_back({hosts.host_of(rank), rank, 0});
    ++segments.back().count;
  }
  return segments;
}

constexpr auto partial_bytes = static_cast<std::int64_t>(sizeof(float));

/// By host, bytes sent for one element of every block.
std::vector<std::int64_t> gathered_bytes(const std::vector<Term>& terms,
                                         DType dtype,
                                         const Hosts& hosts) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(hosts.count()));
  for (const Term& term : terms) {
    const auto foreign = hosts.ranks() - static_cast<std::int64_t>(hosts.members(term.host).size());
    bytes[static_cast<std::size_t>(term.host)] +=
        foreign * (term.alone() ? static_cast<std::int64_t>(size_bytes(dtype)) : partial_bytes);
  }
  return bytes;
}

std::vector<std::int64_t> passed_bytes(const std::vector<Segment>& segments,
                                       DType dtype,
                                       const Hosts& hosts) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(hosts.count()));
  const auto size = static_cast<std::int64_t>(size_bytes(dtype));
  for (std::size_t k = 0; k < segments.size(); ++k) {
    const auto host = segments[k].host;
    const auto here = static_cast<std::int64_t>(hosts.members(host).size());
    bytes[static_cast<std::size_t>(host)] +=
        k + 1 < segments.size() ? hosts.ranks() * partial_bytes : (hosts.ranks() - here) * size;
  }
  return bytes;
}

std::int64_t total(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

/// Builds the tasks of a rank.
class Writer {
 public:
  Writer(const Hosts& hosts, DType dtype, int rank)
      : hosts_(hosts), dtype_(dtype), rank_(rank), host_(hosts.host_of(rank)) {}

  [[nodiscard]] int host() const { return host_; }
  [[nodiscard]] bool handles(int block) const { return hosts_.agent(host_, block) == rank_; }

  void begin(int block) {
    task_ = {};
    task_.block = block;
    task_.first = static_cast<std::uint32_t>(routes.steps.size());
  }
  void push_own(int rank) { push({.source = hosts_.local_of(rank)}); }
  void push_incoming(int from, bool partial, bool passed) {
    push({.incoming = true, .partial = partial, .passed = passed, .source = from});
    ++task_.messages;
  }
  void merge() {
    auto& steps = routes.steps;
    if (steps.back().kind == SumStep::Kind::load)
      steps.back().kind = SumStep::Kind::add;
    else
      push({.kind = SumStep::Kind::merge});
  }
  void push_term(const Postfix& all, const Term& term) {
    for (std::size_t i = term.begin; i < term.end; ++i) all[i] == plus ? merge() : push_own(all[i]);
  }
  void end(int to, bool partial) {
    task_.count = static_cast<std::uint32_t>(routes.steps.size()) - task_.first;
    task_.to = to;
    task_.partial = partial;
    task_.unchanged = task_.count == 1 && task_.messages == 0 && to >= 0 && !partial;
    const std::span steps = std::span(routes.steps).subspan(task_.first);
    task_.in_order =
        std::ranges::all_of(steps.subspan(1),
                            [&](const SumStep& step) { return step.kind == SumStep::Kind::add; }) &&
        (dtype_ == DType::f32 || (!partial && std::ranges::none_of(steps, &SumStep::partial)));
    (task_.messages > 0 || to < 0 ? routes.continues : routes.starts).push_back(task_);
  }

  Routes routes;

 private:
  void push(const SumStep& step) { routes.steps.push_back(step); }

  const Hosts& hosts_;
  DType dtype_;
  int rank_, host_;
  BlockTask task_;
};

Routes gathered(
    const Postfix& all, const std::vector<Term>& terms, DType dtype, const Hosts& hosts, int rank) {
  Writer writer(hosts, dtype, rank);
  const int size = hosts.ranks();
  for (const Term& term : terms)
    for (int step = 1; step <= size && term.host == writer.host(); ++step) {
      const int block = (rank + step) % size;
      if (hosts.host_of(block) == writer.host() || !writer.handles(block))
        continue;
      writer.begin(block);
      writer.push_term(all, term);
      writer.end(block, !term.alone());
    }
  writer.begin(rank);
  auto term = terms.begin();
  for (std::size_t i = 0; i < all.size();) {
    if (term == terms.end() || i != term->begin) {
      writer.merge();
      ++i;
      continue;
    }
    if (term->host == writer.host())
      writer.push_term(all, *term);
    else
      writer.push_incoming(hosts.agent(term->host, rank), !term->alone(), false);
    i = term++->end;
  }
  writer.end(-1, false);
  Routes routes = std::move(writer.routes);
  routes.partials = std::ranges::any_of(terms, [](const Term& part) { return !part.alone(); });
  routes.fan = terms.size();
  return routes;
}

Routes passed_on(const std::vector<Segment>& segments, DType dtype, const Hosts& hosts, int rank) {
  Writer writer(hosts, dtype, rank);
  for (std::size_t k = 0; k < segments.size(); ++k) {
    const Segment& segment = segments[k];
    const bool last = k + 1 == segments.size();
    for (int block = 0; block < hosts.ranks() && segment.host == writer.host(); ++block) {
      if (!writer.handles(block))
        continue;
      writer.begin(block);
      if (k > 0)
        writer.push_incoming(hosts.agent(segments[k - 1].host, block), true, k > 1);
      for (int i = 0; i < segment.count; ++i) {
        writer.push_own(segment.first + i);
        if (k > 0 || i > 0)
          writer.merge();
      }
      const int to = last ? block : hosts.agent(segments[k + 1].host, block);
      writer.end(to == rank ? -1 : to, !last);
    }
  }
  if (const int last = segments.back().host; last != writer.host()) {
    writer.begin(rank);
    writer.push_incoming(hosts.agent(last, rank), false, true);
    writer.end(-1, false);
  }
  Routes routes = std::move(writer.routes);
  routes.partials = true;
  std::size_t fewest = static_cast<std::size_t>(hosts.ranks());
  for (int host = 0; host < hosts.count(); ++host)
    fewest = std::min(fewest, hosts.members(host).size());
  routes.fan = static_cast<std::size_t>(hosts.ranks()) / fewest;
  return routes;
}

}  // namespace

Routes make_routes(Reduction reduction, DType dtype, const Hosts& hosts, int rank) {
  const Postfix all = expression_of(reduction, hosts);
  const auto terms = terms_of(all, hosts);
  if (reduction == Reduction::ordered) {
    const auto segments = segments_of(hosts);
    if (total(passed_bytes(segments, dtype, hosts)) < total(gathered_bytes(terms, dtype, hosts)))
      return passed_on(segments, dtype, hosts, rank);
  }
  return gathered(all, terms, dtype, hosts, rank);
}

std::vector<std::int64_t> reduce_bytes_between_hosts(Reduction reduction,
                                                     DType dtype,
                                                     const Hosts& hosts,
                                                     std::int64_t shard_elements) {
  auto bytes = gathered_bytes(terms_of(expression_of(reduction, hosts), hosts), dtype, hosts);
  if (reduction == Reduction::ordered)
    if (auto passed = passed_bytes(segments_of(hosts), dtype, hosts); total(passed) < total(bytes))
      bytes = std::move(passed);
  for (std::int64_t& sum : bytes) sum *= shard_elements;
  return bytes;
}

}  // namespace trireme::comm
