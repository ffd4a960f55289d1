#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// CRC-32C (Castagnoli), as the trailer of a picture carries it. Debian has no library of it.
std::uint32_t Crc32c(std::string_view data);

// SHA-256 as lower-case hexadecimal.
std::string Sha256(std::string_view data);
