// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "text/characters.hpp"
#include "text/json_file.hpp"
#include "text/readers.hpp"

namespace trireme::text {
namespace {

/// One tokenizer.json, with messages about what is wrong in it.
class Reader {
 public:
  explicit Reader(const FileText& file) : path_(file.path), root_(parse_json(file)) {}
  Vocabulary read() {
    if (root_.is_object() && !member(root_, "model").is_object())
      throw UserError({path_},
                      "this is not a tokenizer.json: it has no `model`. A vocabulary alone "
                      "must be named vocab.json, with merges.txt next to it");
    expect_keys(path_, "", root_,
                {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                 "post_processor", "decoder", "model"});
    const Json& model = member(root_, "model");
    if (const Json& type = member(model, "type"); !type.is_null() && type != "BPE")
      refuse("model.type", "only \"BPE\" is implemented");
    // Without bytes that have no token, unk_token and fuse_unk are never asked for.
    expect_keys(path_, "model", model,
                {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                 "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      expect_without(model, "model.", key, "");
    vocabulary_.characters = member(model, "byte_fallback") == true;
    if (!vocabulary_.characters)
      expect_without(model, "model.", "byte_fallback", false);
    read_normalizer(member(root_, "normalizer"), "normalizer");
    const std::string decoder = vocabulary_.characters ? "Sequence" : "ByteLevel";
    if (const Json& its = member(root_, "decoder");
        !its.is_null() && type_of(its, "decoder") != decoder)
      refuse("decoder.type", fmt::format("only {} is implemented with byte_fallback: {}", decoder,
                                         vocabulary_.characters));
    const Json& whole = member(model, "ignore_merges");
    if (!whole.is_null() && !whole.is_boolean())
      refuse("model.ignore_merges", "neither true nor false");
    vocabulary_.whole_pieces = whole == true;
    read_pre_tokenizer();
    read_post_processor(member(root_, "post_processor"), "post_processor");
    read_tokens();
    read_merges();
    vocabulary_.end_of_text = find_end_of_text(vocabulary_);
    if (!begin_.empty()) {
      const auto begin = special_named(vocabulary_, begin_);
      if (!begin)
        refuse("post_processor", fmt::format("'{}' is not in added_tokens", shortened(begin_)));
      vocabulary_.end_of_text = vocabulary_.begin_of_text = begin;
    }
    return std::move(vocabulary_);
  }

 private:
  [[noreturn]] void refuse(std::string_view key, std::string text) const {
    refuse_key(path_, key, std::move(text));
  }
  /// `without` is what is read as well as null: false, or an empty text.
  void expect_without(const Json& object,
                      std::string_view where,
                      std::string_view key,
                      const Json& without) const {
    const Json& value = member(object, key);
    if (!value.is_null() && value != without)
      refuse(fmt::format("{}{}", where, key), fmt::format("this is not supported; only {} is read",
                                                          without == false ? "false" : "null"));
  }
  std::string type_of(const Json& object, const std::string& where) const {
    if (!object.is_object() || !member(object, "type").is_string())
      refuse(where, "this has no \"type\"");
    return member(object, "type").get<std::string>();
  }
  void read_pre_tokenizer() {
    const Json& object = member(root_, "pre_tokenizer");
    const std::string where = "pre_tokenizer";
    if (vocabulary_.characters && object.is_null() && writes_spaces_)
      return;
    const std::string type = type_of(object, where);
    if (vocabulary_.characters && type == "Metaspace")
      return read_metaspace(object, where);
    if (vocabulary_.characters && type == "Split" && writes_spaces_ &&
        member(member(object, "pattern"), "String") == " ")
      return;  // no space is left to split at
    if (vocabulary_.characters)
      refuse(where + ".type", fmt::format("'{}' is not supported with byte_fallback: Metaspace is",
                                          shortened(type)));
    if (type == "ByteLevel")
      return read_byte_level(object, where, true);
    if (type != "Sequence")
      refuse(where + ".type", fmt::format("'{}' is not supported: ByteLevel is, and a Sequence of "
                                          "Split or Digits and ByteLevel",
                                          shortened(type)));
    expect_keys(path_, where, object, {"type", "pretokenizers"});
    const Json& parts = member(object, "pretokenizers");
    const std::string list = where + ".pretokenizers";
    std::vector<std::string_view> expressions;
    bool digits = false, ends = false;
    for (std::size_t i = 0; parts.is_array() && i < parts.size() && !ends; ++i) {
      const std::string place = fmt::format("{}[{}]", list, i), part = type_of(parts[i], place);
      if (part == "Digits" && i == 0) {
        expect_keys(path_, place, parts[i], {"type", "individual_digits"});
        if (member(parts[i], "individual_digits") != true)
          refuse(place + ".individual_digits", "only true is implemented");
        digits = true;
      } else if (part == "Split" && !digits) {
        expressions.push_back(expression_in(parts[i], place));
      } else if (part == "ByteLevel" && i + 1 == parts.size() && i > 0) {
        read_byte_level(parts[i], place, digits);
        ends = true;
      } else {
        break;
      }
    }
    if (!ends)
      refuse(list,
             "only a Split and then ByteLevel are implemented, and Digits and then ByteLevel");
    const auto known =
        digits ? std::optional(Pattern::smollm) : pattern_of_expressions(expressions);
    if (!known)
      refuse(list + "[0].pattern.Regex",
             fmt::format("this expression is not one of those that are implemented: {}",
                         pattern_names()));
    vocabulary_.pattern = *known;
  }
  void read_byte_level(const Json& object, const std::string& where, bool with_expression) const {
    expect_keys(path_, where, object, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    expect_without(object, where + ".", "add_prefix_space", false);
    const Json& use = member(object, "use_regex");
    if (!use.is_null() && !use.is_boolean())
      refuse(where + ".use_regex", "neither true nor false");
    if ((use.is_null() || use == true) != with_expression)
      refuse(where + ".use_regex", with_expression
                                       ? "without it no pattern splits the text; that is "
                                         "not supported"
                                       : "only one pattern at a time is supported");
  }
  std::string_view expression_in(const Json& object, const std::string& where) const {
    expect_keys(path_, where, object, {"type", "pattern", "behavior", "invert"});
    if (member(object, "behavior") != "Isolated")
      refuse(where + ".behavior", "only \"Isolated\" is implemented");
    expect_without(object, where + ".", "invert", false);
    const Json& pattern = member(object, "pattern");
    expect_keys(path_, where + ".pattern", pattern, {"Regex"});
    const Json& expression = member(pattern, "Regex");
    if (!expression.is_string())
      refuse(where + ".pattern.Regex", "this is no expression");
    return expression.get_ref<const std::string&>();
  }
  /// NFC, and with byte_fallback Prepend and Replace; alone or in a Sequence.
  void read_normalizer(const Json& object, const std::string& where) {
    if (object.is_null() || object == "")
      return;
    const std::string type = type_of(object, where);
    if (type == "NFC") {
      vocabulary_.nfc = true;
      return;
    }
    if (vocabulary_.characters && type == "Prepend" && member(object, "prepend") == written_space) {
      vocabulary_.prefix = SpacePrefix::parts;
      return;
    }
    if (vocabulary_.characters && type == "Replace" && member(object, "content") == written_space &&
        member(object, "pattern") == Json{{"String", " "}}) {
      writes_spaces_ = true;
      return;
    }
    const Json& parts = member(object, "normalizers");
    if (type != "Sequence" || !parts.is_array())
      refuse(where, fmt::format(
                        "'{}' is not supported. Supported are null and NFC, and with byte_fallback "
                        "Prepend and Replace, which write U+2581 for spaces",
                        shortened(type)));
    for (std::size_t i = 0; i < parts.size(); ++i)
      read_normalizer(parts[i], fmt::format("{}.normalizers[{}]", where, i));
  }
  void read_metaspace(const Json& object, const std::string& where) {
    expect_keys(path_, where, object,
                {"type", "replacement", "add_prefix_space", "prepend_scheme", "split"});
    if (member(object, "replacement") != written_space)
      refuse(where + ".replacement", "only U+2581 is implemented");
    if (member(object, "split") != false)
      refuse(where + ".split", "only false is implemented");
    const Json &scheme = member(object, "prepend_scheme"),
               &adds = member(object, "add_prefix_space");
    if (scheme == "never" || (scheme.is_null() && adds == false))
      return;
    if (!scheme.is_null() && scheme != "first" && scheme != "always")
      refuse(where + ".prepend_scheme", "neither first, always nor never");
    if (vocabulary_.prefix != SpacePrefix::none)
      refuse(where + ".prepend_scheme",
             "the normalizer Prepend puts a space before a text already");
    vocabulary_.prefix = scheme == "first" ? SpacePrefix::first_word : SpacePrefix::words;
  }
  [[nodiscard]] VocabularyEntry entry_named(const std::string& name,
                                            const std::string& where) const {
    if (!vocabulary_.characters) {
      auto bytes = from_alphabet(name);
      if (!bytes)
        refuse(where, "this is not in the alphabet of byte-level vocabularies");
      return {std::move(*bytes)};
    }
    if (const auto byte = byte_named(name))
      return {std::string(1, *byte), false, false, true};
    return {with_spaces(name)};
  }
  void read_post_processor(const Json& object, const std::string& where) {
    if (object.is_null())
      return;
    const std::string type = type_of(object, where);
    if (type == "ByteLevel")
      return;  // it changes offsets only, which are not used here
    if (type == "TemplateProcessing")
      return read_template(object, where);
    const Json& parts = member(object, "processors");
    if (type != "Sequence" || where != "post_processor" || !parts.is_array())
      refuse(where + ".type", fmt::format("'{}' is not supported", shortened(type)));
    for (std::size_t i = 0; i < parts.size(); ++i)
      read_post_processor(parts[i], fmt::format("{}.processors[{}]", where, i));
  }
  void read_template(const Json& object, const std::string& where) {
    const Json& single = member(object, "single");
    if (!single.is_array() || single.empty())
      refuse(where + ".single", "expected a list");
    const Json& first = single.front();
    if (!first.is_object())
      refuse(where + ".single[0]", "expected an object {...}");
    const Json& special = member(first, "SpecialToken");
    if (special.is_null())
      return;
    if (!special.is_object() || !member(special, "id").is_string())
      refuse(where + ".single[0].SpecialToken.id", "this names no token");
    begin_ = member(special, "id").get<std::string>();
  }
  void read_tokens() {
    const Json& model = member(root_, "model");
    const Json& vocab = member(model, "vocab");
    if (!vocab.is_object())
      refuse("model.vocab", "expected an object {...}");
    struct Found {
      std::int64_t id;
      VocabularyEntry entry;
      std::string key;
    };
    std::vector<Found> found;
    const Json& added = member(root_, "added_tokens");
    if (!added.is_null() && !added.is_array())
      refuse("added_tokens", "expected a list");
    for (std::size_t i = 0; i < added.size(); ++i) {
      const std::string where = fmt::format("added_tokens[{}]", i);
      expect_keys(path_, where, added[i],
                  {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      const Json &id = member(added[i], "id"), &content = member(added[i], "content");
      if (!id.is_number_integer() || !content.is_string())
        refuse(where, "this has no \"id\" and \"content\"");
      const bool special = member(added[i], "special") == true;
      for (const char* key : {"single_word", "lstrip", "rstrip"})
        if (!special)
          expect_without(added[i], where + ".", key, false);
      const auto& name = content.get_ref<const std::string&>();
      if (!special && member(added[i], "normalized") == true &&
          (vocabulary_.prefix == SpacePrefix::parts || (vocabulary_.nfc && nfc(name) != name)))
        refuse(where + ".normalized",
               "true is not supported for a token that is not special and that the normalizer "
               "changes");
      if (!added_.insert(name).second)
        refuse(where + ".content", "the token occurs twice");
      const Json& same = member(vocab, name);
      if (!same.is_null() && same != id)
        refuse(where + ".id", "model.vocab gives this token another id");
      found.push_back({id.get<std::int64_t>(), {name, special, !special}, where});
    }
    for (const auto& [name, id] : vocab.items()) {
      if (added_.contains(name))
        continue;
      const std::string where = "model.vocab." + shortened(name);
      if (!id.is_number_integer())
        refuse(where, "the id is not an integer");
      found.push_back({id.get<std::int64_t>(), entry_named(name, where), where});
    }
    std::ranges::stable_sort(found, {}, &Found::id);
    for (Found& one : found)
      if (const std::string problem = put_token(vocabulary_, one.id, std::move(one.entry));
          !problem.empty())
        refuse(one.key, problem);
    for (const auto& [name, id] : vocab.items())
      if (!added_.contains(name))
        ids_.emplace(name, id.get<Token>());
  }
  void read_merges() {
    const Json& merges = member(member(root_, "model"), "merges");
    if (!merges.is_array())
      refuse("model.merges", "expected a list");
    for (std::size_t i = 0; i < merges.size(); ++i)
      vocabulary_.merges.push_back(read_merge(merges[i], fmt::format("model.merges[{}]", i)));
  }
  MergePair read_merge(const Json& merge, const std::string& where) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {token_named(merge[0].get_ref<const std::string&>(), where),
              token_named(merge[1].get_ref<const std::string&>(), where)};
    if (!merge.is_string())
      refuse(where, "a merge is \"left right\" or [\"left\", \"right\"]");
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos)
      refuse(where, "a merge is two tokens with a space between them");
    return {token_named(std::string_view(text).substr(0, space), where),
            token_named(std::string_view(text).substr(space + 1), where)};
  }
  Token token_named(std::string_view name, const std::string& where) const {
    const auto found = ids_.find(name);
    if (found == ids_.end())
      refuse(where,
             added_.contains(std::string(name))
                 ? fmt::format("merges of '{}', an added token, are not supported", shortened(name))
                 : fmt::format("'{}' is not in model.vocab", shortened(name)));
    return found->second;
  }

  std::string path_;
  Json root_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string_view, Token> ids_;  ///< of model.vocab
  std::unordered_set<std::string> added_;
  bool writes_spaces_ = false;  ///< a normalizer replaces them
  std::string begin_;           ///< the special token that a TemplateProcessing puts before a text
};

}  // namespace

Vocabulary read_tokenizer_json(const FileText& file) {
  return Reader(file).read();
}

}  // namespace trireme::text
