// SPDX-License-Identifier: Apache-2.0 OR MIT
// The page as three files of fixed names, so that the binary can hold them and a build can be
// compared byte for byte.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte()],
  build: {
    target: "es2022",
    sourcemap: false,
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        entryFileNames: "page.js",
        chunkFileNames: "page-[name].js",
        assetFileNames: "page[extname]",
      },
    },
  },
  test: { include: ["src/**/*.test.ts", "types.test.mjs"], environment: "node" },
});
