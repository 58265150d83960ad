#include "pack.h"

#include <cmath>
#include <cstring>

#include "half.h"

namespace kernels {
namespace {

// Thirty-two numbers of one row with their scales: what every quantised file type is decoded to. Types of four bits a
// number are left as 16 bytes, the first 16 numbers in their lower halves.
struct Group {
  uint8_t numbers[kGroup];
  const uint8_t* halves;
  uint16_t scale[2];
  uint16_t offset;
};

struct FileLayout {
  int32_t type;
  int32_t packed;
  int columns;  // of a block
  int bytes;
};

constexpr FileLayout kLayouts[] = {
    {kFileF32, kFloat32, 1, 4},           {kFileF16, kFloat16, 1, 2},           {kFileBF16, kBfloat16, 1, 2},
    {kFileQ4_0, kFourBits, 32, 18},       {kFileQ4_1, kFourBitsOffset, 32, 20}, {kFileQ5_0, kFiveBits, 32, 22},
    {kFileQ5_1, kFiveBitsOffset, 32, 24}, {kFileQ8_0, kEightBits, 32, 34},      {kFileQ4_K, kFourBitsOffset, 256, 144},
    {kFileQ5_K, kFiveBitsOffset, 256, 176}, {kFileQ6_K, kSixBits16, 256, 210}, {kFileMXFP4, kFourBitFloats, 32, 17},
    {kFileMXFP4Pairs, kFourBitFloats, 32, 17},
};

const FileLayout* layout_of(int32_t file_type) {
  for (const FileLayout& layout : kLayouts)
    if (layout.type == file_type) return &layout;
  return nullptr;
}

uint16_t read16(const uint8_t* p) {
  uint16_t result;
  std::memcpy(&result, p, sizeof result);
  return result;
}

void split_nibbles(const uint8_t* bytes, uint8_t* numbers) {
  for (int i = 0; i < 16; i++) {
    numbers[i] = bytes[i] & 15;
    numbers[i + 16] = bytes[i] >> 4;
  }
}

void add_fifth_bits(const uint8_t* bits, uint8_t* numbers) {
  for (int i = 0; i < kGroup; i++) numbers[i] |= static_cast<uint8_t>((bits[i / 8] >> (i % 8) & 1) << 4);
}

// The six-bit scale and minimum of one of the eight groups in a block of Q4_K or Q5_K.
void split_scales(const uint8_t* packed, int group, int& scale, int& minimum) {
  if (group < 4) {
    scale = packed[group] & 63;
    minimum = packed[group + 4] & 63;
  } else {
    scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
    minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
  }
}

void decode_k(const uint8_t* block, int index, bool fifth_bits, Group& out) {
  int scale = 0;
  int minimum = 0;
  split_scales(block + 4, index, scale, minimum);
  out.scale[0] = to_half(from_half(read16(block)) * static_cast<float>(scale));
  out.offset = to_half(-from_half(read16(block + 2)) * static_cast<float>(minimum));
  const uint8_t* numbers = block + (fifth_bits ? 48 : 16) + index / 2 * 32;
  if (fifth_bits) {
    for (int i = 0; i < kGroup; i++)
      out.numbers[i] = static_cast<uint8_t>((numbers[i] >> index % 2 * 4 & 15) | (block[16 + i] >> index & 1) << 4);
    return;
  }
  for (int i = 0; i < 16; i++)
    out.numbers[i] = static_cast<uint8_t>(index % 2 != 0 ? numbers[i] >> 4 | (numbers[16 + i] & 240)
                                                         : (numbers[i] & 15) | numbers[16 + i] << 4);
  out.halves = out.numbers;
}

void decode_q6_k(const uint8_t* block, int index, Group& out) {
  const uint8_t* low = block + index / 4 * 64 + index % 2 * 32;
  const uint8_t* high = block + 128 + index / 4 * 32;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192) + index / 4 * 8 + index % 4 * 2;
  const float scale = from_half(read16(block + 208));
  for (int i = 0; i < kGroup; i++) {
    const int nibble = index % 4 < 2 ? low[i] & 15 : low[i] >> 4;
    out.numbers[i] = static_cast<uint8_t>(nibble | (high[i] >> (2 * (index % 4)) & 3) << 4);
  }
  for (int i = 0; i < 2; i++) out.scale[i] = to_half(scale * static_cast<float>(scales[i]));
}

// A file's exponent e stands for 2^(e - 127), and our numbers are doubled. Below 2^-126 it counts as 0.
void decode_mxfp4(const uint8_t* block, bool pairs, Group& out) {
  out.scale[0] = static_cast<uint16_t>(block[0] < 2 ? 0 : block[0] - 1);
  out.halves = block + 1;
  if (!pairs) return;
  for (int i = 0; i < 8; i++) {
    out.numbers[2 * i] = static_cast<uint8_t>((block[1 + i] & 15) | block[9 + i] << 4);
    out.numbers[2 * i + 1] = static_cast<uint8_t>(block[1 + i] >> 4 | (block[9 + i] & 240));
  }
  out.halves = out.numbers;
}

// The group `index` of a row.
void decode(int32_t file_type, const uint8_t* row, int index, Group& out) {
  switch (file_type) {
    case kFileQ4_0:
      out.scale[0] = read16(row + index * 18);
      out.halves = row + index * 18 + 2;
      return;
    case kFileQ4_1:
      out.scale[0] = read16(row + index * 20);
      out.offset = read16(row + index * 20 + 2);
      out.halves = row + index * 20 + 4;
      return;
    case kFileQ5_0:
      out.scale[0] = read16(row + index * 22);
      split_nibbles(row + index * 22 + 6, out.numbers);
      add_fifth_bits(row + index * 22 + 2, out.numbers);
      return;
    case kFileQ5_1:
      out.scale[0] = read16(row + index * 24);
      out.offset = read16(row + index * 24 + 2);
      split_nibbles(row + index * 24 + 8, out.numbers);
      add_fifth_bits(row + index * 24 + 4, out.numbers);
      return;
    case kFileQ8_0:
      out.scale[0] = read16(row + index * 34);
      for (int i = 0; i < kGroup; i++) out.numbers[i] = row[index * 34 + 2 + i] ^ 128;
      return;
    case kFileMXFP4:
    case kFileMXFP4Pairs:
      return decode_mxfp4(row + index * 17, file_type == kFileMXFP4Pairs, out);
    case kFileQ4_K:
      return decode_k(row + index / 8 * 144, index % 8, false, out);
    case kFileQ5_K:
      return decode_k(row + index / 8 * 176, index % 8, true, out);
    default:
      return decode_q6_k(row + index / 8 * 210, index % 8, out);
  }
}

// Where the numbers of row `lane` lie among the 512 of a group: 8 sets of 16 rows of 4 columns.
int place(int lane, int column) { return column / 4 * 64 + lane * 4 + column % 4; }

// The same of four bits each, from a group's halves to the format's bytes: four columns in lower halves, the next four in
// upper ones.
void place_halves(const uint8_t* halves, int lane, uint8_t* out) {
  constexpr uint32_t kLow = 0x0f0f0f0f;
  for (int half = 0; half < 2; half++) {
    uint32_t first;
    uint32_t second;
    std::memcpy(&first, halves + half * 8, sizeof first);
    std::memcpy(&second, halves + half * 8 + 4, sizeof second);
    const uint32_t low = (first & kLow) | (second & kLow) << 4;
    const uint32_t high = (first >> 4 & kLow) | (second & ~kLow);
    std::memcpy(out + half * 64 + lane * 4, &low, sizeof low);
    std::memcpy(out + (half + 2) * 64 + lane * 4, &high, sizeof high);
  }
}

// 512 numbers of a byte each to the bits of the format.
void squeeze(int32_t format, const uint8_t* wide, uint8_t* out) {
  if (format == kEightBits) {
    std::memcpy(out, wide, 512);
    return;
  }
  for (int pair = 0; pair < 4; pair++)
    for (int i = 0; i < 64; i++)
      out[pair * 64 + i] =
          static_cast<uint8_t>((wide[pair * 128 + i] & 15) | (wide[pair * 128 + 64 + i] & 15) << 4);
  if (number_bytes(format) == 320) {
    for (int i = 0; i < 64; i++) {
      int plane = 0;
      for (int set = 0; set < 8; set++) plane |= (wide[set * 64 + i] >> 4 & 1) << set;
      out[256 + i] = static_cast<uint8_t>(plane);
    }
  } else if (number_bytes(format) == 384) {
    for (int half = 0; half < 2; half++)
      for (int i = 0; i < 64; i++) {
        int plane = 0;
        for (int set = 0; set < 4; set++) plane |= (wide[(half * 4 + set) * 64 + i] >> 4 & 3) << 2 * set;
        out[256 + half * 64 + i] = static_cast<uint8_t>(plane);
      }
  }
}

void pack_tile(int32_t file_type, const FileLayout& layout, const uint8_t* rows, int count, int columns, uint8_t* out) {
  const int64_t row_bytes = file_row_bytes(file_type, columns);
  const int groups = columns / kGroup;
  const int scales = scales_per_group(layout.packed);
  std::memset(out, 0, tile_bytes(layout.packed, columns));
  for (int group = 0; group < groups; group++, out += group_bytes(layout.packed)) {
    uint8_t* scale_at = out + number_bytes(layout.packed);
    uint8_t wide[512] = {};
    bool placed = false;
    for (int lane = 0; lane < count; lane++) {
      Group decoded{};
      decode(file_type, rows + lane * row_bytes, group, decoded);
      placed = decoded.halves != nullptr;
      if (placed) place_halves(decoded.halves, lane, out);
      for (int i = 0; i < kGroup && !placed; i++) wide[place(lane, i)] = decoded.numbers[i];
      for (int i = 0; i < scales; i++)
        std::memcpy(scale_at + (i * kTile + lane) * scale_bytes(layout.packed), &decoded.scale[i], scale_bytes(layout.packed));
      if (has_offsets(layout.packed)) std::memcpy(scale_at + (kTile + lane) * 2, &decoded.offset, 2);
    }
    if (!placed) squeeze(layout.packed, wide, out);
  }
}

void pack_dense_tile(int item_bytes, const uint8_t* rows, int count, int columns, uint8_t* out) {
  std::memset(out, 0, static_cast<size_t>(columns) * kTile * item_bytes);
  for (int lane = 0; lane < count; lane++) {
    const uint8_t* row = rows + static_cast<size_t>(lane) * columns * item_bytes;
    for (int column = 0; column < columns; column++)
      std::memcpy(out + (static_cast<size_t>(column) * kTile + lane) * item_bytes, row + column * item_bytes, item_bytes);
  }
}

float dense_item(int32_t type, const uint8_t* row, int column) {
  if (type == kFileF32) {
    float value;
    std::memcpy(&value, row + column * 4, sizeof value);
    return value;
  }
  const uint16_t bits = read16(row + column * 2);
  return type == kFileF16 ? from_half(bits) : from_bfloat(bits);
}

void quantise_q8_0(const float* x, uint8_t* out) {
  float most = 0.0f;
  for (int i = 0; i < kGroup; i++) most = std::fmax(most, std::fabs(x[i]));
  const uint16_t scale = to_half(most / 127.0f);
  const float step = from_half(scale);
  std::memcpy(out, &scale, sizeof scale);
  for (int i = 0; i < kGroup; i++) {
    const float number = step > 0 ? std::nearbyint(x[i] / step) : 0.0f;
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::fmin(std::fmax(number, -127.0f), 127.0f)));
  }
}

void quantise_q4_1(const float* x, uint8_t* out) {
  float low = x[0];
  float high = x[0];
  for (int i = 1; i < kGroup; i++) {
    low = std::fmin(low, x[i]);
    high = std::fmax(high, x[i]);
  }
  const uint16_t scale = to_half((high - low) / 15.0f);
  const uint16_t offset = to_half(low);
  const float step = from_half(scale);
  std::memcpy(out, &scale, sizeof scale);
  std::memcpy(out + 2, &offset, sizeof offset);
  for (int i = 0; i < 16; i++) {
    int number[2];
    for (int half = 0; half < 2; half++) {
      const float level = step > 0 ? std::nearbyint((x[i + 16 * half] - from_half(offset)) / step) : 0.0f;
      number[half] = static_cast<int>(std::fmin(std::fmax(level, 0.0f), 15.0f));
    }
    out[4 + i] = static_cast<uint8_t>(number[0] | number[1] << 4);
  }
}

}  // namespace

int32_t packed_format(int32_t file_type) {
  const FileLayout* layout = layout_of(file_type);
  return layout == nullptr ? -1 : layout->packed;
}

int64_t file_row_bytes(int32_t file_type, int columns) {
  const FileLayout* layout = layout_of(file_type);
  if (layout == nullptr || columns % layout->columns != 0) return -1;
  return static_cast<int64_t>(columns / layout->columns) * layout->bytes;
}

void pack_rows(int32_t file_type, const uint8_t* rows, int count, int columns, uint8_t* out) {
  const FileLayout& layout = *layout_of(file_type);
  const int64_t row_bytes = file_row_bytes(file_type, columns);
  for (int row = 0; row < count; row += kTile) {
    const int lanes = count - row < kTile ? count - row : kTile;
    const uint8_t* first = rows + row * row_bytes;
    if (is_dense(layout.packed)) {
      pack_dense_tile(layout.bytes, first, lanes, columns, out);
    } else {
      pack_tile(file_type, layout, first, lanes, columns, out);
    }
    out += tile_bytes(layout.packed, columns);
  }
}

void quantise_rows(int32_t from, const uint8_t* rows, int count, int columns, int32_t to, uint8_t* out) {
  const int64_t row_bytes = file_row_bytes(from, columns);
  const int block_bytes = to == kFileQ8_0 ? 34 : 20;
  for (int row = 0; row < count; row++)
    for (int column = 0; column < columns; column += kGroup) {
      float x[kGroup];
      for (int i = 0; i < kGroup; i++) x[i] = dense_item(from, rows + row * row_bytes, column + i);
      to == kFileQ8_0 ? quantise_q8_0(x, out) : quantise_q4_1(x, out);
      out += block_bytes;
    }
}

namespace {

uint8_t number_at(int32_t format, const uint8_t* group, int lane, int column) {
  const int at = lane * 4 + column % 4;
  const int set = column / 4;
  if (format == kEightBits) return group[set * 64 + at];
  int number = group[set / 2 * 64 + at] >> (set % 2 * 4) & 15;
  if (number_bytes(format) == 320) number |= (group[256 + at] >> set & 1) << 4;
  if (number_bytes(format) == 384) number |= (group[256 + set / 4 * 64 + at] >> (set % 4 * 2) & 3) << 4;
  return format == kFourBitFloats ? kDoubledFloats[number] : static_cast<uint8_t>(number);
}

constexpr int zero_of(int32_t format) {
  switch (format) {
    case kFourBits: return 8;
    case kFourBitFloats: return 16;
    case kFiveBits: return 16;
    case kSixBits16: return 32;
    case kEightBits: return 128;
    default: return 0;
  }
}

// Of one of 16 rows, its scale or offset of a group.
float half_or_power(int32_t format, const uint8_t* at, int lane) {
  return format == kFourBitFloats ? float_of(static_cast<uint32_t>(at[lane]) << 23) : from_half(read16(at + lane * 2));
}

}  // namespace

void unpack_row(const Matrix& matrix, int row, float* out) {
  const uint8_t* tile = matrix.tile(row / kTile);
  const int lane = row % kTile;
  const int32_t format = matrix.format;
  if (is_dense(format)) {
    const int item_bytes = format == kFloat32 ? 4 : 2;
    const int32_t type = format == kFloat32 ? kFileF32 : format == kFloat16 ? kFileF16 : kFileBF16;
    for (int column = 0; column < matrix.columns; column++)
      out[column] = dense_item(type, tile + (static_cast<size_t>(column) * kTile + lane) * item_bytes, 0);
    return;
  }
  for (int column = 0; column < matrix.columns; column++) {
    const uint8_t* group = tile + column / kGroup * group_bytes(format);
    const uint8_t* scale_at = group + number_bytes(format);
    const int part = scales_per_group(format) == 2 ? column % kGroup / 16 : 0;
    const float scale = half_or_power(format, scale_at + part * kTile * 2, lane);
    const int number = number_at(format, group, lane, column % kGroup) - zero_of(format);
    const float offset = has_offsets(format) ? half_or_power(format, scale_at + kTile * 2, lane) : 0.0f;
    out[column] = scale * static_cast<float>(number) + offset;
  }
}

}  // namespace kernels
