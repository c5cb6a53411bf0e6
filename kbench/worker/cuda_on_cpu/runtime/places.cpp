// Where in the candidate's source is this program counter? Read from the module's own line table (DWARF 2 to 5),
// and only once a fault is to be reported.
#include <dlfcn.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "state.h"

namespace kbench_cuda {

namespace {

constexpr uint32_t kIsSite = 0x80000000u;

std::mutex sites_mutex;
std::vector<Site> sites;

// A cursor over the bytes of one section; reading past the end gives zeros.
class Reader {
 public:
  Reader(const uint8_t* begin, const uint8_t* end) : at_(begin), end_(end) {}
  uint64_t bytes(unsigned count) {
    uint64_t value = 0;
    for (unsigned i = 0; i < count && at_ < end_; i++) value |= uint64_t{*at_++} << (8 * i);
    return value;
  }
  uint64_t unsigned_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0; at_ < end_; shift += 7) {
      uint8_t byte = *at_++;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) break;
    }
    return value;
  }
  int64_t signed_leb() {
    uint64_t value = 0;
    unsigned shift = 0;
    while (at_ < end_) {
      uint8_t byte = *at_++;
      if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if (byte & 0x80) continue;
      if ((byte & 0x40) && shift < 64) value |= ~uint64_t{0} << shift;
      break;
    }
    return static_cast<int64_t>(value);
  }
  std::string text() {
    const uint8_t* begin = at_;
    while (at_ < end_ && *at_) at_++;
    std::string value(begin, at_);
    if (at_ < end_) at_++;
    return value;
  }
  void skip(uint64_t count) { at_ += count < static_cast<uint64_t>(end_ - at_) ? count : end_ - at_; }
  const uint8_t* at() const { return at_; }
  bool done() const { return at_ >= end_; }
  Reader until(const uint8_t* end) const { return Reader(at_, end < end_ ? end : end_); }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

struct Section {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
};

class LineTable {
 public:
  explicit LineTable(const std::vector<uint8_t>& file) {
    lines_ = section(file, ".debug_line");
    strings_ = section(file, ".debug_str");
    line_strings_ = section(file, ".debug_line_str");
  }

  Line find(uint64_t address) {
    Reader reader(lines_.begin, lines_.end);
    while (!reader.done()) {
      uint64_t length = reader.bytes(4);
      unsigned offset_size = 4;
      if (length == 0xffffffff) {
        length = reader.bytes(8);
        offset_size = 8;
      }
      Reader unit = reader.until(reader.at() + length);
      reader.skip(length);
      Line line = find_in_unit(unit, offset_size, address);
      if (line.line) return line;
    }
    return {"", 0};
  }

 private:
  static Section section(const std::vector<uint8_t>& file, const char* name) {
    if (file.size() < sizeof(Elf64_Ehdr)) return {};
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
    const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file.data() + header->e_shoff);
    if (header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > file.size()) return {};
    const char* names = reinterpret_cast<const char*>(file.data() + sections[header->e_shstrndx].sh_offset);
    for (int i = 0; i < header->e_shnum; i++) {
      if (std::strcmp(names + sections[i].sh_name, name) != 0 || (sections[i].sh_flags & SHF_COMPRESSED)) continue;
      const uint8_t* begin = file.data() + sections[i].sh_offset;
      return {begin, begin + sections[i].sh_size};
    }
    return {};
  }

  std::string form_text(Reader& reader, uint64_t form, unsigned offset_size) {
    if (form == 0x08) return reader.text();  // DW_FORM_string
    if (form == 0x0e || form == 0x1f) {      // DW_FORM_strp, DW_FORM_line_strp
      const Section& from = form == 0x0e ? strings_ : line_strings_;
      uint64_t offset = reader.bytes(offset_size);
      return from.begin + offset < from.end ? Reader(from.begin + offset, from.end).text() : "";
    }
    switch (form) {
      case 0x0b: reader.skip(1); break;               // DW_FORM_data1
      case 0x05: reader.skip(2); break;               // DW_FORM_data2
      case 0x06: reader.skip(4); break;               // DW_FORM_data4
      case 0x07: reader.skip(8); break;               // DW_FORM_data8
      case 0x1e: reader.skip(16); break;              // DW_FORM_data16
      case 0x0f: reader.unsigned_leb(); break;        // DW_FORM_udata
      default: reader.skip(reader.unsigned_leb());    // DW_FORM_block
    }
    return "";
  }

  // The names of DWARF 5's table of directories or files, in order.
  std::vector<std::string> names_5(Reader& reader, unsigned offset_size) {
    std::vector<std::pair<uint64_t, uint64_t>> formats(reader.bytes(1));
    for (auto& [content, form] : formats) {
      content = reader.unsigned_leb();
      form = reader.unsigned_leb();
    }
    std::vector<std::string> names(reader.unsigned_leb());
    for (std::string& name : names) {
      for (const auto& [content, form] : formats) {
        std::string text = form_text(reader, form, offset_size);
        if (content == 1) name = text;  // DW_LNCT_path
      }
    }
    return names;
  }

  static std::vector<std::string> names_4(Reader& reader) {
    while (!reader.done() && !reader.text().empty()) {
    }
    std::vector<std::string> files{""};
    for (std::string name = reader.text(); !name.empty(); name = reader.text()) {
      files.push_back(name);
      for (int i = 0; i < 3; i++) reader.unsigned_leb();
    }
    return files;
  }

  Line find_in_unit(Reader unit, unsigned offset_size, uint64_t address) {
    unsigned version = static_cast<unsigned>(unit.bytes(2));
    if (version >= 5) unit.skip(2);
    uint64_t header_bytes = unit.bytes(offset_size);
    const uint8_t* program = unit.at() + header_bytes;
    unsigned step = static_cast<unsigned>(unit.bytes(1));
    if (version >= 4) unit.skip(1);
    unit.skip(1);
    int line_base = static_cast<int8_t>(unit.bytes(1));
    unsigned line_range = static_cast<unsigned>(unit.bytes(1));
    unsigned opcode_base = static_cast<unsigned>(unit.bytes(1));
    std::vector<uint8_t> operands(opcode_base);
    for (unsigned i = 1; i < opcode_base; i++) operands[i] = static_cast<uint8_t>(unit.bytes(1));
    if (!line_range) return {"", 0};
    std::vector<std::string> files;
    if (version >= 5) {
      names_5(unit, offset_size);
      files = names_5(unit, offset_size);
    } else {
      files = names_4(unit);
    }
    unit.skip(static_cast<uint64_t>(program - unit.at()));

    uint64_t at = 0, row_address = 0, file = 1, row_file = 1;
    int64_t line = 1, row_line = 0;
    auto found = [&]() { return row_line && row_address <= address && address < at; };
    auto answer = [&]() -> Line { return {row_file < files.size() ? files[row_file] : "", static_cast<int>(row_line)}; };
    auto emit = [&]() {
      row_address = at;
      row_file = file;
      row_line = line;
    };
    while (!unit.done()) {
      unsigned opcode = static_cast<unsigned>(unit.bytes(1));
      if (opcode >= opcode_base) {
        at += static_cast<uint64_t>((opcode - opcode_base) / line_range) * step;
        line += line_base + static_cast<int>((opcode - opcode_base) % line_range);
        if (found()) return answer();
        emit();
        continue;
      }
      switch (opcode) {
        case 0: {  // extended
          uint64_t length = unit.unsigned_leb();
          const uint8_t* next = unit.at() + length;
          unsigned kind = static_cast<unsigned>(unit.bytes(1));
          if (kind == 1) {  // end of sequence
            if (found()) return answer();
            at = row_address = 0, file = row_file = 1, line = 1, row_line = 0;
          } else if (kind == 2) {
            at = unit.bytes(8);
          }
          unit.skip(static_cast<uint64_t>(next - unit.at()));
          break;
        }
        case 1:
          if (found()) return answer();
          emit();
          break;
        case 2: at += unit.unsigned_leb() * step; break;
        case 3: line += unit.signed_leb(); break;
        case 4: file = unit.unsigned_leb(); break;
        case 8: at += static_cast<uint64_t>((255 - opcode_base) / line_range) * step; break;
        case 9: at += unit.bytes(2); break;
        default:
          for (unsigned i = 0; i < operands[opcode]; i++) unit.unsigned_leb();
      }
    }
    return {"", 0};
  }

  Section lines_, strings_, line_strings_;
};

}  // namespace

uint32_t place_of(Site site) {
  KnownSite unknown;
  KnownSite& slot = worker ? worker->known_sites[static_cast<unsigned>(site.line) % kKnownSites] : unknown;
  if (slot.site.file == site.file && slot.site.line == site.line) return slot.place;
  std::lock_guard<std::mutex> lock(sites_mutex);
  size_t i = 0;
  while (i < sites.size() && (sites[i].file != site.file || sites[i].line != site.line)) i++;
  if (i == sites.size()) sites.push_back(site);
  slot = {site, kIsSite | static_cast<uint32_t>(i)};
  return slot.place;
}

Line line_of(uint32_t place) {
  if (place & kIsSite) {
    std::lock_guard<std::mutex> lock(sites_mutex);
    const Site& site = sites[place & ~kIsSite];
    return {site.file, site.line};
  }
  Dl_info info{};
  dladdr(&__ehdr_start, &info);
  std::ifstream stream(info.dli_fname, std::ios::binary);
  std::vector<uint8_t> file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  // The return address is behind the call, which may already be another line's.
  return LineTable(file).find(place - 1);
}

}  // namespace kbench_cuda
