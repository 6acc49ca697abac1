/* theme: as the system says, or as the switch says. A classic script in the head, so that a page
 * that was switched does not flash in the other colours before the modules have arrived. */
'use strict';
(() => {
    const KEY = 'berth.theme';
    const order = ['auto', 'light', 'dark'];
    const names = {auto: 'as the system', light: 'light', dark: 'dark'};

    function read() {
        try {
            const kept = localStorage.getItem(KEY);
            return order.includes(kept) ? kept : 'auto';
        } catch {
            return 'auto'; /* a browser that keeps nothing */
        }
    }

    let theme = read();

    function show() {
        if (theme === 'auto')
            delete document.documentElement.dataset.theme;
        else
            document.documentElement.dataset.theme = theme;
        const button = document.getElementById('theme-switch');
        if (button) {
            button.setAttribute('aria-label', `Theme: ${names[theme]}`);
            button.title = `Theme: ${names[theme]}`;
            button.dataset.theme = theme;
        }
    }

    show();
    document.addEventListener('DOMContentLoaded', () => {
        show();
        document.getElementById('theme-switch').addEventListener('click', () => {
            theme = order[(order.indexOf(theme) + 1) % order.length];
            try {
                localStorage.setItem(KEY, theme);
            } catch { /* it holds for this page, then */
            }
            show();
        });
    });
})();
