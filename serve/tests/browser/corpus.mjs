// 150 texts that have broken pages elsewhere: as ids, payloads, errors, names, parts of addresses and form fields.
const CALL = "window.__hit=1;alert(1)";
const ELSEWHERE = "//evil.example";

const markup = [
  `<script>${CALL}</script>`, `<ScRiPt>${CALL}</sCrIpT>`, `<script src=${ELSEWHERE}/x.js></script>`, `<script type=module>${CALL}</script>`,
  `</title><script>${CALL}</script>`, `</textarea><script>${CALL}</script>`, `</style><script>${CALL}</script>`, `</pre></td></table><script>${CALL}</script>`,
  `--><script>${CALL}</script>`, `]]><script>${CALL}</script>`, `</script><script>${CALL}</script>`, `<!--<script>${CALL}</script>-->`,
  `<iframe src="javascript:${CALL}"></iframe>`, `<iframe srcdoc="<script>${CALL}</script>"></iframe>`, `<object data="javascript:${CALL}"></object>`, `<embed src="${ELSEWHERE}/x.swf">`,
  `<a href="javascript:${CALL}">go</a>`, `<a href="${ELSEWHERE}">go</a>`, `<base href="${ELSEWHERE}/">`, `<meta http-equiv="refresh" content="0;url=${ELSEWHERE}">`,
  `<link rel=stylesheet href="${ELSEWHERE}/x.css">`, `<link rel=prefetch href="${ELSEWHERE}/x">`, `<style>@import '${ELSEWHERE}/x.css';</style>`, `<style>*{background:url(${ELSEWHERE}/x.png)}</style>`,
  `<form action="${ELSEWHERE}"><button autofocus>send</button></form>`, `<button formaction="javascript:${CALL}">go</button>`, `<input type=image src="${ELSEWHERE}/x.png">`, `<isindex action="javascript:${CALL}">`,
  `<noscript><p title="</noscript><img src=x onerror=${CALL}>">`, `<template><script>${CALL}</script></template>`, `<math><mtext><table><mglyph><style><img src=x onerror=${CALL}>`, `<table background="${ELSEWHERE}/x.png">`,
  `<frameset onload=${CALL}>`, `<dialog open>over everything</dialog>`, `<plaintext>`, `<xmp><script>${CALL}</script>`, `<div style="position:fixed;inset:0;background:red">`, `<p id="main" data-live>taken</p>`,
];
const events = [
  ["img src=x", "onerror"], ["svg", "onload"], ["body", "onload"], ["input autofocus", "onfocus"], ["details open", "ontoggle"], ["video src=x", "onerror"],
  ["audio src=x", "onerror"], ["marquee", "onstart"], ["select autofocus", "onfocus"], ["textarea autofocus", "onfocus"], ["svg><animate", "onbegin"], ["div tabindex=0 autofocus", "onfocus"],
  ["p style=animation:x", "onanimationstart"], ["a autofocus href=x", "onfocus"],
].flatMap(([tag, event]) => [`<${tag} ${event}=${CALL}>`, `"><${tag} ${event}="${CALL}">`]);
const attributes = [
  `" onmouseover="${CALL}`, `' onmouseover='${CALL}`, `" autofocus onfocus="${CALL}`, `x onclick=${CALL}`, `" style="display:none`, `"/><p>`, `'"\`<>&`, `\\" onload=\\"${CALL}`,
];
const templates = [
  "{{7*7}}", "{{constructor.constructor('alert(1)')()}}", "{% include \"base.html\" %}", "${alert(1)}", "<%= 7*7 %>", "#{7*7}", "*{7*7}", "[[${7*7}]]", "@(7*7)", "{{{raw}}}",
];
const svg = [
  `<svg><script>${CALL}</script></svg>`, `<svg><a xlink:href="javascript:${CALL}"><text>go</text></a></svg>`, `<svg><use href="data:image/svg+xml,<svg onload=${CALL}>"></svg>`,
  `<svg><foreignObject><iframe srcdoc="<script>${CALL}</script>"></foreignObject></svg>`, `<svg><set attributeName=href to=javascript:${CALL}>`, `<svg><image href="${ELSEWHERE}/x.png">`, `<svg><style>*{fill:url(${ELSEWHERE}/x)}</style></svg>`,
];
const addresses = [
  `javascript:${CALL}`, `JaVaScRiPt:${CALL}`, `java\tscript:${CALL}`, `\u0001javascript:${CALL}`, `data:text/html,<script>${CALL}</script>`, `vbscript:msgbox(1)`, ELSEWHERE, `https:${ELSEWHERE}/`, `/\\evil.example`,
  "../../../etc/passwd", "..", ".", "%2e%2e%2f", "%00", "%", "%zz", "?a=b&c=d#e", "a/b/c", "a;b=c", "~", "~~", "~YSBi", "a+b c", "#main", "C:\\windows\\system32",
];
const encoded = [
  "&lt;script&gt;alert(1)&lt;/script&gt;", "&#x3c;script&#x3e;", "&amp;amp;", "%3Cscript%3Ealert(1)%3C/script%3E", "\\u003cscript\\u003e", "+ADw-script+AD4-", "\u00a0&nbsp;", "＜script＞",
];
const characters = [
  "\u202egnp.exe", "\u2066\u2067invoice\u2069", "a\u200bb\u200cc\u200dd", "\ufeffbom", "soft\u00adhyphen", "\u2028line\u2029paragraph", "nul\0byte", "line\r\nSet-Cookie: hit=1", "tab\tand\u000bvt", "\u001b[2J\u001b[31mred", "\u0085next", "\u2060\u3164hidden",
  "e\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308", "\u{e0041}\u{e0042}tags", "\u{1f469}\u200d\u{1f680}", "שלום", "مرحبا", "漢字かな交じり文", "  spaces  inside  ", "x".repeat(200), "é".repeat(100), "\u{1f600}".repeat(50), "W".repeat(199) + "<", "a\u202e".repeat(50),
];
const words = ["__proto__", "constructor", "toString", "null", "undefined", "NaN", "'; DROP TABLE messages; --"];
/** Bytes that are not UTF-8. */
export const BROKEN = [[0xff, 0xfe, 0x41], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xe2, 0x82], [0xf4, 0x90, 0x80, 0x80], [0x3c, 0xff, 0x3e]]
  .map((bytes) => Uint8Array.from(bytes));

const bytesOf = (text) => Buffer.byteLength(text);
const most = 150 - BROKEN.length;
const all = [...attributes, ...templates, ...svg, ...addresses, ...encoded, ...characters, ...words, ...markup, ...events];
/** The texts that are UTF-8, of at most 200 bytes. */
export const TEXTS = all.filter((text) => bytesOf(text) <= 200).slice(0, most);

/** The text as an id, or another one if it has a control byte, which no id has. */
export const idOf = (text) => (/[\x00-\x1f\x7f]/.test(text) ? `control:${TEXTS.indexOf(text)}` : text);

/** The texts that can name a queue: at most 128 bytes, without the characters that no name has. */
export const NAMES = [...new Set(TEXTS.map((text) => {
  let name = text.replace(/[/{}\p{Cc}]/gu, "");
  while (bytesOf(name) > 128) name = [...name].slice(0, -1).join("");
  return name;
}))].filter(Boolean);

/** What a page shows of a text, with its escapes read back. */
export const readBack = (shown) => shown.replace(/\\u\{([0-9a-f]+)\}/g, (_, code) => String.fromCodePoint(Number.parseInt(code, 16)));

/** Characters that no page may hold: they are invisible, or change the direction of writing. */
export const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff]/u;
