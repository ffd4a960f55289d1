// The client program: does its steps one after the other and says on stdout, in a JSON line each, how they went.

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <ranges>
#include <sstream>
#include <vector>

#include "steps.h"
#include "text.h"

namespace {

constexpr int kExitUsage = 2;

struct NamedStep {
  std::string_view name;
  std::string (*act)(const Story&);
};

constexpr std::array<NamedStep, 10> kSteps = {{
    {"register", Register},
    {"race", Race},
    {"mismatch", Mismatch},
    {"watch", Watch},
    {"compatibility", Compatibility},
    {"rooms", Rooms},
    {"picture", Picture},
    {"neighbours", Neighbours},
    {"cancel", Cancel},
    {"deadline", Deadline},
}};

// Does one step and tells how it went.
bool Run(const NamedStep& step, const Story& story) {
  const auto started = std::chrono::steady_clock::now();
  bool ok = true;
  std::string detail;
  try {
    detail = step.act(story);
  } catch (const std::exception& error) {
    ok = false;
    detail = error.what();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  google::protobuf::Struct line;
  auto& fields = *line.mutable_fields();
  fields["step"].set_string_value(std::string(step.name));
  fields["ok"].set_bool_value(ok);
  fields["seconds"].set_number_value(seconds.count());
  fields["detail"].set_string_value(detail);
  Say(line);
  return ok;
}

int Usage(const std::string& fault) {
  std::cerr << fault << "\nusage: interlock-client --bootstrap HOST:PORT --preprocess HOST:PORT --pictures DIR "
            << "[--only STEP,...]\nsteps: " << Join(std::views::transform(kSteps, &NamedStep::name), ", ") << "\n";
  return kExitUsage;
}

// The names of `--only`, or of all steps.
std::vector<std::string> Names(const std::string& only) {
  std::vector<std::string> names;
  std::istringstream list(only);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  if (names.empty()) {
    for (const auto& step : kSteps) names.emplace_back(step.name);
  }
  return names;
}

}  // namespace

void Say(const google::protobuf::Struct& line) {
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(line, &text).ok()) std::abort();  // a Struct always has JSON
  std::cout << text << std::endl;  // at once: whoever reads it may be waiting
}

int main(int argc, char** argv) {
  std::map<std::string_view, std::string> given = {
      {"--bootstrap", ""}, {"--preprocess", ""}, {"--pictures", ""}, {"--only", ""}};
  for (int index = 1; index < argc; index += 2) {
    const auto flag = given.find(argv[index]);
    if (flag == given.end()) return Usage(std::string("unknown flag ") + argv[index]);
    if (index + 1 == argc) return Usage(std::string(flag->first) + " needs a value");
    flag->second = argv[index + 1];
  }
  for (const auto* flag : {"--bootstrap", "--preprocess", "--pictures"}) {
    if (given[flag].empty()) return Usage(std::string(flag) + " is missing");
  }
  const auto names = Names(given["--only"]);
  for (const auto& name : names) {
    if (std::ranges::find(kSteps, name, &NamedStep::name) == kSteps.end()) return Usage("unknown step " + name);
  }

  const Story story(given["--bootstrap"], given["--preprocess"], given["--pictures"]);
  bool all_ok = true;
  for (const auto& step : kSteps) {
    if (std::ranges::find(names, step.name) != names.end()) all_ok &= Run(step, story);
  }
  return all_ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
