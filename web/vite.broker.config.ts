// SPDX-License-Identifier: Apache-2.0 OR MIT
// The broker's page: files of fixed names, apart from those of the node's page.
import { defineConfig, mergeConfig } from "vite";

import node from "./vite.config";

export default mergeConfig(
  node,
  defineConfig({
    build: {
      outDir: "dist-broker",
      rollupOptions: {
        input: "broker.html",
        output: { entryFileNames: "broker.js", assetFileNames: "broker[extname]" },
      },
    },
  }),
);
