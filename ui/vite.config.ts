import { defineConfig } from "vite";

// The page is built into the crate that serves it, under stable names, and committed there.
// For development, DOVETAIL_URL is the address of a real server, and DOVETAIL_TOKEN signs in.
const token = process.env.DOVETAIL_TOKEN;
const target = process.env.DOVETAIL_URL ?? "https://127.0.0.1:7878";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../crates/web/page",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome125", "firefox128", "safari18"],
    modulePreload: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        entryFileNames: "app.js",
        codeSplitting: false,
        assetFileNames: (asset) => (asset.names.some((n) => n.endsWith(".css")) ? "app.css" : "[name][extname]"),
      },
    },
  },
  server: {
    proxy: {
      "/api": { target, secure: false, headers: token ? { authorization: `Bearer ${token}` } : {} },
    },
  },
});
