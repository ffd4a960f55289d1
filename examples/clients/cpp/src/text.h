#pragma once

#include <sstream>
#include <string>
#include <string_view>

// Everything one after the other, as text. (Debian's g++ 12 has no std::format yet.)
template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// The items of a range as text, with a separator between them.
template <typename Range>
std::string Join(const Range& items, std::string_view separator) {
  std::ostringstream out;
  std::string_view before;
  for (const auto& item : items) {
    out << before << item;
    before = separator;
  }
  return out.str();
}
