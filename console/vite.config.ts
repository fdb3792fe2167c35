import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  // Chunks find each other relative to themselves; the server writes the mount path into index.html alone.
  base: "./",
  plugins: [react()],
  resolve: { alias: { "@": here("./src") } },
  build: {
    outDir: here("../src/holdfast/server/static"),
    emptyOutDir: true,
    target: ["chrome123", "firefox121", "safari17.5"],
    // A data: URL would need a wider content security policy than files do.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    license: { fileName: "licenses.md" },
  },
  server: { port: 8401, proxy: { "/api": "http://127.0.0.1:8400" } },
});
