// SPDX-License-Identifier: Apache-2.0 OR MIT
import { expect, test } from "vitest";

import { classFields, classRequest, exactShare, parseInterfaces, parseShare } from "./class";

const unnamed = { process: "", group: "", domain: "", namespace: "", interface: "" };
const none = { deadline_ns: null, period_ns: null, cpu_ppm: null, core: null, weight: null };

test("a class is shown as a person would type it", () => {
  expect(classFields(undefined)).toEqual({
    class: "",
    deadline: "",
    period: "",
    cpu: "",
    core: "",
    weight: "",
    ...unnamed,
  });
  const held = { type: "periodic", deadline_ns: 5e6, period_ns: 1e7, cpu_ppm: 125_000 } as const;
  expect(classFields(held)).toEqual({
    class: "periodic",
    deadline: "5 ms",
    period: "10 ms",
    cpu: "12.5 %",
    core: "",
    weight: "",
    ...unnamed,
  });
  const bound = classFields({ ...held, period_ns: 5e6, core: 3 });
  expect(bound).toMatchObject({ period: "", core: "3" });
});

test("a class is asked for with its own keys alone", () => {
  const typed = classFields(undefined);
  expect(classRequest(typed)).toEqual({ body: { realtime: null } });
  const periodic = { ...typed, class: "periodic", deadline: "5ms", cpu: "20%", weight: "7" };
  expect(classRequest(periodic)).toEqual({
    body: { realtime: { ...none, type: "periodic", deadline_ns: 5e6, cpu_ppm: 200_000 } },
  });
  expect(classRequest({ ...periodic, class: "normal" })).toEqual({
    body: { realtime: { ...none, type: "normal", weight: 7 } },
  });
  const bound = { body: { realtime: { core: 3 } } };
  expect(classRequest({ ...periodic, core: "3" })).toMatchObject(bound);
  expect(classRequest({ ...periodic, cpu: "0.2" })).toEqual({
    key: "cpu",
    message: "“0.2” is not a share such as 20 %",
  });
});

test("threads are named, or stay as they are", () => {
  const typed = { ...classFields(undefined), class: "periodic", deadline: "5ms", cpu: "20%" };
  const body = { ...none, type: "periodic", deadline_ns: 5e6, cpu_ppm: 200_000 };
  expect(classRequest(typed)).toEqual({ body: { realtime: body } });
  const others = { process: null, group: null, domain: null, namespace: null, interface: null };
  expect(classRequest({ ...typed, process: " /run/voice.pid " })).toEqual({
    body: { realtime: { ...body, ...others, process: "/run/voice.pid" } },
  });
  const list = [{ device: "v0", inside: "eth0" }, { device: "v1" }];
  expect(classRequest({ ...typed, namespace: "edge", interface: "v0=eth0, v1" })).toEqual({
    body: { realtime: { ...body, ...others, namespace: "edge", interface: list } },
  });
  expect(classRequest({ ...typed, interface: "v0=eth0=x" })).toMatchObject({ key: "interface" });
  expect(parseInterfaces(" ")).toEqual([]);
});

test("shares are read back exactly", () => {
  for (const ppm of [1, 10_000, 125_000, 1_000_000]) expect(parseShare(exactShare(ppm))).toBe(ppm);
  for (const typed of ["", "20", "%", "-1 %"]) expect(parseShare(typed)).toBeUndefined();
});
