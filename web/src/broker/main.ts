// SPDX-License-Identifier: Apache-2.0 OR MIT
import "../page.css";

import { mount } from "svelte";

import App from "./App.svelte";
import { broker } from "./state.svelte";

const target = document.getElementById("page");
if (target) mount(App, { target });
broker.begin();
// Another address of the same page, with another token: nothing is loaded anew for it.
addEventListener("hashchange", () => broker.begin());
