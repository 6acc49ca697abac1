/* free: "Unload Models" and "Free model and node cache". Both first ask for the receipt of a dry
 * run and show what would go and what would stay; the real one's receipt comes as a toast. The list
 * has the receipts of all frees that the server remembers. */
import * as api from './api.js';
import {compare} from './compare.js';
import {loadDevices, loadModels, loadReceipts} from './data.js';
import {heldOf, paint} from './devices.js';
import * as dialog from './dialog.js';
import {$, button, el, keyed, put, show} from './dom.js';
import {bytes, count, seconds, time} from './format.js';
import {letterOf, modelById, modelName, on, state} from './store.js';
import {toast, trouble} from './toast.js';

const KINDS = {
    unload: {title: 'Unload Models', body: {unload_models: true}},
    free: {title: 'Free model and node cache', body: {unload_models: true, free_memory: true}},
};

let kind = null;
let turn = 0;    /* counts openings of the dialog: answers to an earlier one are not for this one */
let look = null; /* AbortController of the dry run */

const goes = (m) => m.verdict === 'ejected';
const released = (receipt) => receipt.devices.reduce((n, d) => n + d.released, 0);
const rowsOf = (receipt) => receipt.devices.map(
    (d) => ({device: d.device, before: heldOf(d.before), after: heldOf(d.after)}));

function verdict(m, test) {
    const badge = el('span', {class: 'badge', 'aria-hidden': 'true'});
    if (modelById(m.id)) {
        paint(badge, m.id);
        badge.textContent = letterOf(m.id);
    } else {
        badge.dataset.tier = 'weights';
    }
    return el('li', {data: {test, model: m.id, bytes: m.bytes}}, badge,
        el('strong', {class: 'name', text: modelName(m)}),
        el('span', {class: 'num', text: bytes(m.bytes)}),
        el('span', {class: 'quiet', text: m.why}));
}

function list(node, models, test, none) {
    node.replaceChildren(...(models.length ? models.map((m) => verdict(m, test)) :
                                             [el('li', {class: 'quiet', text: none})]));
}

/* ---- before ---- */

async function openFree(which) {
    kind = KINDS[which];
    const mine = ++turn;
    look = new AbortController();
    put($('free-title'), {text: kind.title});
    show($('free-preview'), false);
    show($('free-error'), false);
    show($('free-cache'), Boolean(kind.body.free_memory));
    put($('free-wait'),
        {text: 'Working out what would go; a running prompt answers between its steps.'});
    show($('free-wait'), Boolean(state.queue.running));
    $('btn-free-ok').disabled = true;
    put($('btn-free-ok'), {text: kind.title});
    put($('btn-free-cancel'), {text: 'Cancel'});
    dialog.open('dlg-free');
    $('btn-free-cancel').focus();
    try {
        const receipt =
            await api.slowPost('/free', {...kind.body, dry_run: true}, look.signal);
        if (mine === turn && $('dlg-free').open)
            preview(receipt);
    } catch (e) {
        if (mine === turn && !look.signal.aborted)
            fail(e);
    }
}

function fail(e) {
    put($('free-error'), {text: e.message});
    show($('free-error'), true);
    show($('free-wait'), false);
}

function preview(receipt) {
    const going = receipt.models.filter(goes);
    list($('free-goes'), going, 'goes', 'No model.');
    list($('free-stays'), receipt.models.filter((m) => !goes(m)), 'stays', 'No model.');
    $('free-devices').replaceChildren(compare(rowsOf(receipt), {row: 'free-device'}));
    /* "about": buffers come and go between this look and the free. */
    put($('btn-free-ok'),
        {text: going.length ? `Free about ${bytes(released(receipt))}` : kind.title});
    show($('free-wait'), false);
    show($('free-preview'), true);
    $('btn-free-ok').disabled = false;
    $('btn-free-ok').focus();
}

/* ---- doing it ---- */

/* A free that was confirmed happens, also when nobody waits for its receipt. */
async function confirmed() {
    const mine = turn, {title, body} = kind;
    const here = () => mine === turn && $('dlg-free').open;
    if (state.queue.running) {
        put($('free-wait'), {text: 'It waits for the running prompt.'});
        show($('free-wait'), true);
        put($('btn-free-cancel'), {text: 'Close; it will still happen'});
    }
    $('btn-free-cancel').focus();
    $('btn-free-ok').disabled = true;
    try {
        const receipt = await api.slowPost('/free', {...body, wait: true, reason: 'dashboard'});
        if (here())
            dialog.close('dlg-free');
        tookPlace(receipt);
    } catch (e) {
        if (here())
            fail(e);
        else
            trouble(`${title} failed`, e);
    }
    loadModels();
    loadDevices();
}

/* ---- after ---- */

function sentence(receipt) {
    const going = receipt.models.filter(goes), stays = receipt.models.length - going.length;
    const what = going.length ? `${going.map(modelName).join(', ')} went` : 'No model went';
    return `${what}${stays ? `, ${count(stays, 'model')} stayed` : ''}.`;
}

function deviceLines(receipt) {
    return rowsOf(receipt)
        .filter((r) => r.before !== r.after)
        .map((r) => `${r.device}: ${bytes(r.before)} → ${bytes(r.after)}`)
        .join('\n');
}

/* A receipt to tell; the server keeps it. */
export function tookPlace(receipt) {
    if (!receipt || !Array.isArray(receipt.devices))
        return;
    const action = button('Receipt', 'open-receipt', openReceipts, {class: 'small'});
    const text = [sentence(receipt), deviceLines(receipt)].filter(Boolean).join('\n');
    toast('done', `${bytes(released(receipt))} released`, text,
        {data: {receipt: receipt.serial}, action, stay: 12000});
    if (receipt.violations?.length)
        trouble('A model that should have stayed was touched',
            new Error(receipt.violations.map((v) => `${v.name}: ${v.step}`).join('\n')));
}

/* The list is asked for when somebody looks, and again when a message tells of a later one. */
function openReceipts() {
    loadReceipts();
    dialog.open('dlg-receipts');
}

export function heard(serial) {
    if ($('dlg-receipts').open && serial !== state.receipts?.[0]?.serial)
        loadReceipts();
}

function makeReceipt(r) {
    return el('article', {class: 'receipt', data: {test: 'receipt', serial: r.serial}},
        el('p', {}, el('strong', {text: `${bytes(released(r))} released`}), el('span', {
            class: 'quiet',
            text: ` · ${time(r.time + state.skew)} · receipt ${r.serial}, ${r.reason}, ${
                seconds(r.seconds)}`
        })),
        r.models.length ?
            el('ul', {class: 'verdicts'},
                ...r.models.map((m) => el('li', {},
                    el('strong', {class: 'name', text: modelName(m)}),
                    el('span', {text: m.verdict}),
                    el('span', {class: 'num', text: bytes(m.bytes)}),
                    el('span', {class: 'quiet', text: m.why})))) :
            null,
        compare(rowsOf(r), {}, 'before'), el('p', {
            class: 'quiet hint num',
            text: `process ${bytes(r.rss.before)} → ${bytes(r.rss.after)}`
        }));
}

function drawReceipts() {
    keyed($('receipts-list'), state.receipts || [], (r) => `${r.serial} ${r.time}`, makeReceipt);
    show($('receipts-empty'), state.receipts?.length === 0);
}

export function start() {
    on('receipts', drawReceipts);
    $('btn-unload').addEventListener('click', () => openFree('unload'));
    $('btn-free').addEventListener('click', () => openFree('free'));
    $('btn-free-ok').addEventListener('click', confirmed);
    $('btn-free-cancel').addEventListener('click', () => dialog.close('dlg-free'));
    $('dlg-free').addEventListener('close', () => look?.abort());
    $('btn-receipts').addEventListener('click', openReceipts);
    $('btn-receipts-close').addEventListener('click', () => dialog.close('dlg-receipts'));
}
