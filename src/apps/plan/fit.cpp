// SPDX-License-Identifier: Apache-2.0
#include "plan/fit.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

double residual_of(std::span<const Point> points, const Line& line) {
  double sum = 0;
  for (const Point& point : points) {
    const double predicted =
        line.latency_s + line.seconds_per_byte * static_cast<double>(point.bytes);
    const double error = predicted / point.seconds - 1;
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(points.size()));
}

}  // namespace

/// With u = 1 / T and v = B / T the relative error is a u + b v - 1, linear in both.
Line fit_line(std::span<const Point> points) {
  TRIREME_EXPECT(!points.empty(), "a line through {} points", points.size());
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const Point& point : points) {
    TRIREME_EXPECT(point.seconds > 0, "{} bytes took {} s", point.bytes, point.seconds);
    const double u = 1 / point.seconds, v = static_cast<double>(point.bytes) / point.seconds;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u1 += u;
    v1 += v;
  }
  Line line;
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-12 * uu * vv) {
    line.latency_s = (u1 * vv - v1 * uv) / determinant;
    line.seconds_per_byte = (uu * v1 - uv * u1) / determinant;
  }
  if (line.latency_s <= 0 && line.seconds_per_byte <= 0)  // one size: all of it is bytes
    line = {0, v1 / vv, 0};
  else if (line.latency_s < 0)
    line = {0, v1 / vv, 0};
  else if (line.seconds_per_byte < 0)
    line = {u1 / uu, 0, 0};
  line.residual = residual_of(points, line);
  return line;
}

double measured_seconds(const Collective& c, double bytes) {
  const auto line = [&](double at) { return c.latency_s + c.seconds_per_byte * at; };
  const auto size = [](const Point& point) { return static_cast<double>(point.bytes); };
  if (c.points.empty())
    return line(bytes);
  const auto after = std::ranges::lower_bound(c.points, bytes, {}, size);
  if (after == c.points.begin()) {
    const Point& first = c.points.front();
    const double least = std::min(c.latency_s, first.seconds);
    return least + (first.seconds - least) * bytes / size(first);
  }
  if (after == c.points.end()) {
    const Point& last = c.points.back();
    return last.seconds + c.seconds_per_byte * (bytes - size(last));
  }
  const Point &low = *(after - 1), &high = *after;
  const double part = (bytes - size(low)) / (size(high) - size(low));
  return low.seconds + part * (high.seconds - low.seconds);
}

double seconds_on(const Collective& collective,
                  double bytes,
                  std::int64_t measured,
                  std::int64_t planned) {
  TRIREME_EXPECT(measured >= 2, "measured on {} ranks", measured);
  if (planned <= 1)
    return 0;
  const double n = static_cast<double>(measured), N = static_cast<double>(planned);
  return (N - 1) / (n - 1) * measured_seconds(collective, bytes * n / N);
}

}  // namespace trireme::plan
