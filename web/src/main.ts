// SPDX-License-Identifier: Apache-2.0 OR MIT
import "uplot/dist/uPlot.min.css";
import "./page.css";

import { mount } from "svelte";

import App from "./App.svelte";
import { live } from "./lib/live.svelte";

const target = document.getElementById("page");
if (target) mount(App, { target });
live.begin();
// Another address of the same page, with another token: nothing is loaded anew for it.
addEventListener("hashchange", () => live.begin());
