// SPDX-License-Identifier: Apache-2.0 OR MIT
// The colours of the style sheet for what is drawn on a canvas, light or dark.

class Theme {
  accent = "";
  fill = "";
  guarantee = "";
  line = "";
  soft = "";
  /** True if the reader wants less motion. */
  calm = $state(false);
  /** Counts changes of colour. */
  version = $state(0);

  constructor() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    dark.addEventListener("change", () => this.#read());
    calm.addEventListener("change", () => (this.calm = calm.matches));
    this.calm = calm.matches;
    this.#read();
  }

  #read(): void {
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
    this.accent = of("accent");
    this.fill = of("fill");
    this.guarantee = of("guarantee");
    this.line = of("line");
    this.soft = of("soft");
    this.version += 1;
  }
}

export const theme = new Theme();
