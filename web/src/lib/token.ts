// SPDX-License-Identifier: Apache-2.0 OR MIT
// The token of a page: its tab keeps it, and the address may bring it.

/** Takes the token behind `#token=` in the address, or else the one that this tab keeps. */
export function givenToken(key: string): string {
  const given = /[#&]token=([^&]+)/.exec(location.hash)?.[1];
  // The token leaves the address bar, so that nobody copies it with the address.
  if (given) history.replaceState(null, "", location.pathname + location.search);
  return given ?? sessionStorage.getItem(key) ?? "";
}

/** Has this tab keep a token. An empty one is forgotten. */
export function keepToken(key: string, token: string): void {
  if (token === "") sessionStorage.removeItem(key);
  else sessionStorage.setItem(key, token);
}
