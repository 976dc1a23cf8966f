// SPDX-License-Identifier: Apache-2.0 OR MIT
import "uplot/dist/uPlot.min.css";
import "./page.css";

import { mount } from "svelte";

import App from "./App.svelte";
import { live } from "./lib/live.svelte";

const target = document.getElementById("page");
if (target) mount(App, { target });
live.begin();
