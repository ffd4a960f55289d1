#include "checksums.h"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ (remainder & 1 ? kPolynomial : 0);
    table[byte] = remainder;
  }
  return table;
}();

}  // namespace

std::uint32_t Crc32c(std::string_view data) {
  std::uint32_t remainder = ~std::uint32_t{0};
  for (const char byte : data) {
    remainder = kTable[(remainder ^ static_cast<unsigned char>(byte)) & 0xff] ^ (remainder >> 8);
  }
  return ~remainder;
}

std::string Sha256(std::string_view data) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL has no SHA-256");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int index = 0; index < size; ++index) {
    text += kDigits[digest[index] >> 4];
    text += kDigits[digest[index] & 0xf];
  }
  return text;
}
