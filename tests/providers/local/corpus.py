"""Texts of many scripts and shapes, on which a tokenizer has to agree with its reference."""

__all__ = ["CORPUS"]

CORPUS = (
    "Hello world",
    " leading and  double  spaces   ",
    "tabs\tand\nnew\n\nlines\r\n  indented\n\n\n    code()",
    "I'll don't WE'RE it's a/b_c 3.14 1,000,000 I'D'VE",
    "naïve café Łódź Привет, мир! Ёлка и ещё раз Привет مرحبا بالعالم שלום हिन्दी में नमस्ते दुनिया ไทย",
    "你好，世界！日本語テスト カタカナ 한국어 𠮷野家 漢字かな交じり文",
    "🙂👩\u200d👩\u200d👧\u200d👦🇩🇪👍🏽 ✅→∑≠ 🏴\u200d☠️",
    '{"a": [1, 2, {"b": null}], "path": "C:\\\\x"}',
    "def f(x: int) -> str:\n\treturn f'{x!r}' if x >= 10 else \"\"  # note\n\n\n",
    "class CamelCaseHTTPServer2:\n    pass\n",
    "for (int i=0;i<n;++i) { a[i] += b->c; } // done",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start |> <im_end> <|im_end| >",
    "</s> <s> <unk> [INST] <0x0A> <|end|>\n\nnext <tool>call</tool>",
    "a\u0301 e\u0301 \u200b\u00a0\ufeff \x00\x01\x7f\x85 \u2028\u3000",
    "½ ² ٣٤٥ १२३ Ⅷ ǅ ﬁ ª ᵃ İi ßẞ",
    "   \n \t \r\n\r\n  x",
    "",
    " ",
    "\n",
    "\n\n\n\n",
    "             x",
    "supercalifragilisticexpialidocious" * 3,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!????....",
)
