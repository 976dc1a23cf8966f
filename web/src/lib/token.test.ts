// SPDX-License-Identifier: Apache-2.0 OR MIT
import { afterEach, expect, it, vi } from "vitest";

import { givenToken, keepToken } from "./token";

afterEach(() => vi.unstubAllGlobals());

it("takes a token from the address once, and keeps it in the tab until it is forgotten", () => {
  const kept = new Map<string, string>();
  vi.stubGlobal("sessionStorage", {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, text: string) => void kept.set(key, text),
    removeItem: (key: string) => void kept.delete(key),
  });
  vi.stubGlobal("location", { hash: "#a=b&token=t1", pathname: "/", search: "?x" });
  const replaceState = vi.fn();
  vi.stubGlobal("history", { replaceState });
  expect(givenToken("k")).toBe("t1");
  expect(replaceState).toHaveBeenCalledWith(null, "", "/?x");
  keepToken("k", "t1");
  vi.stubGlobal("location", { hash: "", pathname: "/", search: "" });
  expect([givenToken("k"), givenToken("other")]).toEqual(["t1", ""]);
  keepToken("k", "");
  expect(givenToken("k")).toBe("");
  expect(replaceState).toHaveBeenCalledTimes(1);
});
