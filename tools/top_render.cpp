#include "top_render.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "cli_beacon.hpp"
#include "cli_text.hpp"
#include "top_sections.hpp"
#include "top_words.hpp"

namespace gradshm::tools {
using core::MemberSnapshot;
using core::Snapshot;
namespace {

enum class Paint { plain, title, alarm, faint };

struct Line {
  std::string text;
  Paint paint = Paint::plain;
};
using Lines = std::vector<Line>;

// Rows of each section; what does not fit gives way in the order of fit_to.
struct Share {
  std::size_t workers = 0, rounds = 0, events = 0;
};

std::size_t section_cost(std::size_t rows) { return rows == 0 ? 0 : rows + 2; }  // an empty line and the titles

Share fit_to(Share share, std::size_t lines) {
  const std::size_t all_workers = share.workers;
  const auto cost = [&] {
    return section_cost(share.workers) + (share.workers < all_workers ? 1 : 0) + section_cost(share.rounds) + section_cost(share.events);
  };
  const auto shrink = [&](std::size_t& rows, std::size_t floor) {
    while (cost() > lines && rows > floor) --rows;
  };
  shrink(share.events, 0);
  shrink(share.rounds, 3);
  shrink(share.workers, 3);
  shrink(share.rounds, 0);
  shrink(share.workers, 0);
  return share;
}

void append(Lines& lines, const std::vector<std::string>& texts, Paint paint = Paint::plain) {
  for (const std::string& text : texts) lines.push_back({text, paint});
}

Paint paint_of(const MemberSnapshot& member, const std::vector<const MemberSnapshot*>& late, bool stuck) {
  if (member.state == core::MemberState::gone || member.state == core::MemberState::paused) return Paint::faint;
  return stuck && std::find(late.begin(), late.end(), &member) != late.end() ? Paint::alarm : Paint::plain;
}

Lines head(const Snapshot& snapshot, const core::Layout& layout, std::size_t width) {
  Lines lines;
  for (const auto& items : header_items(snapshot, layout)) append(lines, wrap(items, "  ", width), lines.empty() ? Paint::title : Paint::plain);
  append(lines, wrap_words(state_sentence(snapshot), width), is_stuck(snapshot) ? Paint::alarm : Paint::plain);
  return lines;
}

// Those that are waited for first, if not all can be shown; then by rank.
std::vector<const MemberSnapshot*> choose(const Snapshot& snapshot, const std::vector<const MemberSnapshot*>& late, std::size_t count) {
  std::vector<const MemberSnapshot*> chosen;
  for (const MemberSnapshot& member : snapshot.members) chosen.push_back(&member);
  const auto is_late = [&](const MemberSnapshot* member) { return std::find(late.begin(), late.end(), member) != late.end(); };
  std::stable_partition(chosen.begin(), chosen.end(), is_late);
  chosen.resize(std::min(count, chosen.size()));
  std::sort(chosen.begin(), chosen.end(), std::less<>());  // they point into one vector, which is by rank
  return chosen;
}

void add_section(Lines& lines, const std::vector<Column>& columns, const std::vector<Row>& rows, std::size_t width) {
  if (rows.empty()) return;
  lines.push_back({});
  append(lines, format_table(columns, rows, width));
  lines[lines.size() - rows.size() - 1].paint = Paint::title;
}

void add_workers(Lines& lines, const Snapshot& snapshot, std::size_t count, std::size_t width) {
  const auto late = late_members(snapshot);
  const auto chosen = choose(snapshot, late, count);
  std::vector<Row> rows;
  for (const MemberSnapshot* member : chosen) rows.push_back(worker_row(snapshot, *member));
  add_section(lines, worker_columns(), rows, width);
  for (std::size_t i = 0; i < chosen.size(); ++i) lines[lines.size() - chosen.size() + i].paint = paint_of(*chosen[i], late, is_stuck(snapshot));
  const std::size_t hidden = snapshot.members.size() - chosen.size();
  if (hidden > 0) append(lines, {clip("(" + core::plural(hidden, "more worker") + ")", width)}, Paint::faint);
}

void add_rounds(Lines& lines, const Snapshot& snapshot, const core::Layout& layout, std::size_t count, std::size_t width) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(round_row(snapshot.rounds[i], layout));
  add_section(lines, round_columns(layout), rows, width);
}

void add_events(Lines& lines, const Snapshot& snapshot, std::size_t count, std::size_t width) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(event_row(snapshot, snapshot.events[snapshot.events.size() - 1 - i].event));
  add_section(lines, event_columns(), rows, width);
}

std::string painted(const Line& line, bool color) {
  constexpr const char* kCodes[] = {"", "\x1b[1m", "\x1b[1;31m", "\x1b[2m"};
  if (!color || line.paint == Paint::plain || line.text.empty()) return line.text;
  return kCodes[static_cast<int>(line.paint)] + line.text + "\x1b[0m";
}

std::vector<std::string> to_texts(Lines lines, const View& view) {
  if (view.height > 0 && lines.size() > view.height) lines.resize(view.height);
  std::vector<std::string> texts;
  for (const Line& line : lines) texts.push_back(painted(line, view.color));
  return texts;
}

}  // namespace

std::vector<std::string> render(const Snapshot& snapshot, const core::Layout& layout, const View& view) {
  const std::size_t width = std::max<std::size_t>(view.width, 1);
  Lines lines = head(snapshot, layout, width);
  Share share{snapshot.members.size(), std::min<std::size_t>(snapshot.rounds.size(), 8), std::min<std::size_t>(snapshot.events.size(), 5)};
  if (view.height > 0) share = fit_to(share, view.height > lines.size() ? view.height - lines.size() : 0);
  add_workers(lines, snapshot, share.workers, width);
  add_rounds(lines, snapshot, layout, share.rounds, width);
  add_events(lines, snapshot, share.events, width);
  return to_texts(std::move(lines), view);
}

std::vector<std::string> render_dead(const core::BeaconData& beacon, std::uint64_t now_ns, const View& view) {
  const std::size_t width = std::max<std::size_t>(view.width, 1);
  const std::string name = text_of(beacon.name);
  Lines lines;
  append(lines, wrap({"gradshm " + core::escape(name), dead_for(now_ns, beacon.progress_ns), "pid " + std::to_string(beacon.pid),
                      "incarnation " + core::format_hex(beacon.incarnation)}, "  ", width), Paint::title);
  append(lines, wrap_words(dead_sentence(beacon, now_ns), width), Paint::alarm);
  append(lines, wrap({"socket " + core::escape(text_of(beacon.socket_path))}, "  ", width));
  append(lines, wrap_words(what_to_do(name), width));
  return to_texts(std::move(lines), view);
}

}  // namespace gradshm::tools
