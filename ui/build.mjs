// Builds the page into the package, or the tests into .build/tests (--tests).
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const STATIC = "../ai_platform_engineering/web/static";
const ASSETS = `${STATIC}/assets`;
const COMMON = {
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
};

// Names hold a hash of the contents: a browser keeps such a file for ever, and a new build has new names.
async function buildPage() {
  rmSync(STATIC, { recursive: true, force: true });
  mkdirSync(ASSETS, { recursive: true });
  const { metafile } = await build({
    ...COMMON,
    entryPoints: { app: "src/app.tsx", style: "src/styles/style.css" },
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    splitting: true,
    outdir: ASSETS,
    minify: true,
    sourcemap: false,
    legalComments: "linked",
    metafile: true,
  });
  copyFileSync("src/icon.svg", `${ASSETS}/icon.svg`);
  writeFileSync(`${STATIC}/index.html`, namedAssets(readFileSync("src/index.html", "utf8"), metafile.outputs));
  compressAll();
}

/** The document with the names that the build gave to its script and its style. */
function namedAssets(html, outputs) {
  let named = html;
  for (const [path, { entryPoint }] of Object.entries(outputs)) {
    if (entryPoint === "src/app.tsx") named = named.replace("/assets/app.js", `/assets/${basename(path)}`);
    if (entryPoint === "src/styles/style.css") named = named.replace("/assets/style.css", `/assets/${basename(path)}`);
  }
  if (/\/assets\/(app\.js|style\.css)/.test(named)) throw new Error("index.html names an asset that was not built");
  return named;
}

/** Each file also compressed: it is read once for each build, and sent many times. */
function compressAll() {
  const files = [`${STATIC}/index.html`, ...readdirSync(ASSETS).map(name => `${ASSETS}/${name}`)];
  for (const file of files) {
    const content = readFileSync(file);
    writeFileSync(`${file}.gz`, gzipSync(content, { level: constants.Z_BEST_COMPRESSION }));
    writeFileSync(`${file}.br`, brotliCompressSync(content));
  }
}

async function buildTests() {
  rmSync(".build", { recursive: true, force: true });
  const tests = readdirSync("tests").filter(name => name.endsWith(".test.ts"));
  await build({
    ...COMMON,
    entryPoints: tests.map(name => `tests/${name}`),
    outdir: ".build/tests",
    platform: "node",
    packages: "external",
    outExtension: { ".js": ".mjs" },
  });
}

await (process.argv.includes("--tests") ? buildTests() : buildPage());
