// Builds the page into the package, or the tests into .build/tests (--tests).
import { build } from "esbuild";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";

const STATIC = "../ai_platform_engineering/web/static";
const COMMON = {
  bundle: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
};

async function buildPage() {
  rmSync(STATIC, { recursive: true, force: true });
  mkdirSync(`${STATIC}/assets`, { recursive: true });
  await build({
    ...COMMON,
    entryPoints: { app: "src/app.tsx", style: "src/styles/style.css" },
    outdir: `${STATIC}/assets`,
    minify: true,
    sourcemap: false,
    legalComments: "linked",
  });
  cpSync("src/index.html", `${STATIC}/index.html`);
  cpSync("src/icon.svg", `${STATIC}/assets/icon.svg`);
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
